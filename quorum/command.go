package quorum

import (
	"errors"
	"fmt"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// ErrCommandTooLong says that a command is longer than MaxCommandBytes.
var ErrCommandTooLong = errors.New("quorum: command too long")

// MaxCommandBytes is the longest encoded command that becomes a part of the log. An entry holds one
// command of that length, or several of entryMaxBytes together; a frame of a forward stream one
// such command behind others of sendMaxBytes; and a raft frame as many entries as one request may
// have.
const MaxCommandBytes = 5<<20 - 64<<10

// encodeCommand encodes a command that is to become a part of the log, if it fits into the frames
// between members.
func encodeCommand(c *znode.Command) ([]byte, error) {
	data := c.Append(nil)
	if len(data) > MaxCommandBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrCommandTooLong, len(data), MaxCommandBytes)
	}
	return data, nil
}

// checkCommandSafely is checkCommand, of which a panic is an error.
func checkCommandSafely(b []byte) (kind znode.Kind, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoding it: %v", p)
		}
	}()
	return checkCommand(b)
}

func checkCommand(b []byte) (znode.Kind, error) {
	if len(b) > MaxCommandBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrCommandTooLong, len(b), MaxCommandBytes)
	}
	c, rest, err := znode.DecodeCommand(b)
	if err != nil {
		return 0, err
	}
	if len(rest) > 0 {
		return 0, fmt.Errorf("%d bytes too many", len(rest))
	}
	switch c.Kind {
	case znode.KindRequest, znode.KindCreateSession, znode.KindAttach, znode.KindSync, znode.KindReconfig, znode.KindRestore:
		return c.Kind, nil
	}
	return 0, fmt.Errorf("%v is for the leader alone", c.Kind)
}

func appendCommands(b []byte, cmds [][]byte) []byte {
	start := len(b)
	c := codec.Encode(peer.BeginFrame(b))
	for i := range cmds {
		c.Bytes(&cmds[i])
	}
	return peer.EndFrame(c.Encoded(), start)
}

func splitCommands(frame []byte) (cmds [][]byte, err error) {
	c := codec.Decode(frame)
	for c.More() {
		var cmd []byte
		c.Bytes(&cmd)
		cmds = append(cmds, cmd)
	}
	if c.Err() != nil {
		return nil, fmt.Errorf("%w: truncated command in a forward frame", peer.ErrRefused)
	}
	return cmds, nil
}
