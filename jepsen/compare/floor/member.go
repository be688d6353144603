package floor

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Config says which of the three members a process is.
type Config struct {
	// Clients is the host:port where clients connect.
	Clients string
	// Leader is the host:port where the followers find the leader.
	Leader string
	// Leads says that this member is the leader.
	Leads bool
	// File is the log.
	File string
}

// followers is the number of members besides the leader.
const followers = 2

// The first byte of a connection from a follower to the leader.
const (
	logStream     = 'L' // the leader sends entries, and the follower acknowledges each with a byte
	forwardStream = 'F' // the follower sends writes, and the leader acknowledges each with a byte
)

// joinPatience is how long a follower waits for the leader to listen.
const joinPatience = 10 * time.Second

// Member runs one member. It returns when a connection to another member, or the disk, fails.
func Member(cfg Config) error {
	disk, err := openLog(cfg.File)
	if err != nil {
		return err
	}
	if cfg.Leads {
		return lead(cfg, disk)
	}
	return follow(cfg, disk)
}

// lead waits for both followers, and then serves clients.
func lead(cfg Config, disk *logFile) error {
	peers, err := net.Listen("tcp", cfg.Leader)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	l := &leader{disk: disk, acked: make(chan int, 1)}
	failed := make(chan error, 1)
	var forwards []net.Conn
	for len(l.followers) < followers || len(forwards) < followers {
		conn, err := peers.Accept()
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		kind := make([]byte, 1)
		if _, err := io.ReadFull(conn, kind); err != nil {
			return fmt.Errorf("floor: a follower: %w", err)
		}
		if kind[0] == logStream {
			l.followers = append(l.followers, conn)
		} else {
			forwards = append(forwards, conn)
		}
	}
	for i, conn := range l.followers {
		go func() { failed <- l.countAcks(i, conn) }()
	}
	for _, conn := range forwards {
		go func() { failed <- l.serveForwards(conn) }()
	}
	go func() { failed <- serveClients(cfg.Clients, l) }()
	return <-failed
}

// follow joins the leader, and then serves clients.
func follow(cfg Config, disk *logFile) error {
	entries, err := join(cfg.Leader, logStream)
	if err != nil {
		return err
	}
	forward, err := join(cfg.Leader, forwardStream)
	if err != nil {
		return err
	}
	f := &forwarder{leader: forward}
	failed := make(chan error, 1)
	go func() { failed <- followLog(entries, disk) }()
	go func() { failed <- f.answer() }()
	go func() { failed <- serveClients(cfg.Clients, f) }()
	return <-failed
}

func join(addr string, kind byte) (net.Conn, error) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) && time.Since(began) < joinPatience {
			continue
		}
		if err == nil {
			_, err = conn.Write([]byte{kind})
		}
		if err != nil {
			return nil, fmt.Errorf("floor: join %s: %w", addr, err)
		}
		return conn, nil
	}
}

// lengthBytes is the length in front of an entry, and of a write that a follower passes on.
const lengthBytes = 4

func appendFrame(b, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), payload...)
}

// readFrame reads a payload into b, which it may replace.
func readFrame(r *bufio.Reader, b []byte) ([]byte, error) {
	head, err := r.Peek(lengthBytes)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head))
	_, _ = r.Discard(lengthBytes)
	if cap(b) < n {
		b = make([]byte, n)
	}
	_, err = io.ReadFull(r, b[:n])
	return b[:n], err
}

// holdsFrame says whether a whole frame has been read from the socket.
func holdsFrame(r *bufio.Reader) bool {
	if r.Buffered() < lengthBytes {
		return false
	}
	head, _ := r.Peek(lengthBytes)
	return r.Buffered() >= lengthBytes+int(binary.BigEndian.Uint32(head))
}

// logFile is a preallocated file that is written from the beginning again when it is full.
type logFile struct {
	file *os.File
	at   int64
}

// logBytes is the length of a log.
const logBytes = 64 << 20

func openLog(name string) (*logFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	for zeros := make([]byte, 1<<20); err == nil; {
		var at int64
		if at, err = f.Seek(0, io.SeekCurrent); err != nil || at >= logBytes {
			break
		}
		_, err = f.Write(zeros)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	return &logFile{file: f}, nil
}

// append writes an entry and syncs it.
func (l *logFile) append(entry []byte) error {
	if l.at+int64(len(entry)) > logBytes {
		l.at = 0
	}
	if _, err := l.file.WriteAt(entry, l.at); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	l.at += int64(len(entry))
	if err := syscall.Fdatasync(int(l.file.Fd())); err != nil {
		return fmt.Errorf("floor: fdatasync: %w", err)
	}
	return nil
}
