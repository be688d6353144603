package locktest

import (
	"bufio"
	"fmt"
	"net"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Expire ends a session as if the cluster had not heard of its client for too long: its ephemeral
// nodes vanish, others get its locks, and its client, which is disconnected, learns of it when it
// connects again. session is the id that client libraries show.
func (c *Cluster) Expire(session int64) {
	c.t.Helper()
	if err := c.expire(c.members[c.Leader()], wire.SessionID(session)); err != nil {
		c.t.Fatalf("locktest: expire session 0x%x: %v", session, err)
	}
}

// expire takes the session over, which its password allows, and closes it.
func (c *Cluster) expire(m *member, id wire.SessionID) error {
	var info znode.SessionInfo
	ok := false
	m.srv.View(func(store *znode.Store) { info, ok = store.Sessions().Get(id) })
	if !ok {
		return fmt.Errorf("there is no such session")
	}
	conn, err := net.Dial("tcp", m.cfg.Client.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	r := bufio.NewReader(conn)
	hello := wire.ConnectRequest{TimeoutMs: info.TimeoutMs, SessionID: id, Password: info.Password[:]}
	if _, err := conn.Write(wire.AppendFrame(nil, &hello)); err != nil {
		return err
	}
	frame, err := wire.ReadFrame(r, nil, wire.DefaultMaxBuffer)
	if err != nil {
		return err
	}
	var welcome wire.ConnectResponse
	if err := wire.Decode(frame, &welcome); err != nil {
		return err
	}
	if welcome.SessionID != id {
		return fmt.Errorf("it has ended already")
	}
	if _, err := conn.Write(wire.AppendRequest(nil, 1, wire.OpCloseSession, nil)); err != nil {
		return err
	}
	_, err = wire.ReadFrame(r, frame, wire.DefaultMaxBuffer)
	return err
}
