package server

import "io"

const (
	// idleBufferBytes is the size of the read buffer of an idle connection: its client sends pings,
	// and its first frame has 49 bytes. A longer frame takes a second read.
	idleBufferBytes = 56
	// pingBytes is the length of a ping.
	pingBytes = 12
	// usualBufferBytes is its size once the client sends requests: it holds a usual one, or two.
	usualBufferBytes = 256
	// readBufferBytes is its size once the client sends many requests without waiting for replies.
	readBufferBytes = 16 << 10
)

// input is the read buffer of a connection. It grows with the client's requests, and rest makes it
// small again. It is part of the connection, because most connections are idle: a buffer of its own
// takes more memory than all that an idle client sends.
type input struct {
	large     []byte // nil: small is in use
	next, end int32  // the bytes that were received and not read
	small     [idleBufferBytes]byte
}

func (in *input) buffer() []byte {
	if in.large != nil {
		return in.large
	}
	return in.small[:]
}

// size is the number of bytes that the buffer holds.
func (in *input) size() int { return len(in.buffer()) }

// buffered is the number of bytes that were received and not read.
func (in *input) buffered() int { return int(in.end - in.next) }

// peek returns the next n bytes without reading them, n <= idleBufferBytes, and receives them from
// r before. They are valid until the next call. Errors are r's.
func (in *input) peek(r io.Reader, n int) ([]byte, error) {
	for in.buffered() < n {
		if err := in.receive(r); err != nil {
			return nil, err
		}
	}
	return in.buffer()[in.next:][:n], nil
}

// read reads into b, from the buffer and, if that is empty, from r.
func (in *input) read(r io.Reader, b []byte) (int, error) {
	if in.buffered() == 0 {
		if len(b) >= in.size() {
			return r.Read(b)
		}
		if err := in.receive(r); err != nil {
			return 0, err
		}
	}
	n := copy(b, in.buffer()[in.next:in.end])
	in.next += int32(n)
	return n, nil
}

// receive adds to the bytes that are buffered, of which there are fewer than the buffer holds.
func (in *input) receive(r io.Reader) error {
	in.move(in.large)
	n, err := r.Read(in.buffer()[in.end:])
	in.end += int32(n)
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// move makes large the buffer, nil for the small one, with the bytes that are buffered, which it
// holds.
func (in *input) move(large []byte) {
	rest := in.buffer()[in.next:in.end]
	in.large = large
	in.next, in.end = 0, int32(copy(in.buffer(), rest))
}

// took is called after a request of that many bytes has been read. It grows the buffer if the
// client does more than ping, and further if it sends many requests at a time.
func (in *input) took(bytes int) {
	size, n := in.size(), in.buffered()
	switch {
	case size == idleBufferBytes && n+bytes > pingBytes:
		in.move(make([]byte, usualBufferBytes))
	case size == usualBufferBytes && n > 0 && n+bytes > usualBufferBytes/2:
		in.move(make([]byte, readBufferBytes))
	}
}

// rest makes the buffer small, if it can be: the client may be silent now for long.
func (in *input) rest() {
	if in.large != nil && in.buffered() <= idleBufferBytes {
		in.move(nil)
	}
}
