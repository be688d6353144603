package server

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

// dozer watches connections whose clients are silent, with an epoll instance and one goroutine for all of them, from the first on. What a
// client costs that is only there is mostly the goroutine that waits for it and the buffer to read into, 3 KB of 5. Such a client does
// nothing but ping, and that goroutine answers it; for whatever else it sends, its connection gets a goroutine again.
type dozer struct {
	wake func(*conn)      // serves a connection again
	ping func(*conn) bool // answers the client if it has only pinged; without that, it has taken nothing
	log  *slog.Logger

	mu      sync.Mutex
	started bool
	poll    syscall.RawConn // of the epoll instance, which the runtime polls as it polls a socket; nil without one
	file    *os.File
	done    chan struct{}
	dozing  map[int64]*conn // by number
	pinging *conn           // of dozing, the one that ping is called for
}

func newDozer(log *slog.Logger, wake func(*conn), ping func(*conn) bool) *dozer {
	return &dozer{wake: wake, ping: ping, log: log, done: make(chan struct{}), dozing: map[int64]*conn{}}
}

// startLocked makes the epoll instance. Without one connections keep their goroutines.
func (d *dozer) startLocked() error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // or the runtime would not poll it
		_ = syscall.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "epoll of silent clients")
	poll, err := file.SyscallConn()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	d.file, d.poll = file, poll
	go d.run(poll)
	return nil
}

// doze has c served again when there is something to read from it, or it ends. Without that, it has to be waited for. It is called by
// the reader, which must not touch c after that.
func (d *dozer) doze(c *conn) bool {
	sock, ok := c.Conn.(syscall.Conn)
	if d == nil || !ok || c.r.Buffered() > 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started {
		d.started = true
		if err := d.startLocked(); err != nil {
			d.log.Warn("silent clients cannot be watched together: each costs some 3 KB more", "err", err)
		}
	}
	if d.poll == nil || c.ending.Load() {
		return false
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP, Fd: int32(c.number), Pad: int32(c.number >> 32)}
	if !d.controlLocked(sock, syscall.EPOLL_CTL_ADD, &event) {
		return false
	}
	c.r = nil
	d.dozing[c.number] = c
	return true
}

// rouse has c, which is ending, served again if it dozes.
func (d *dozer) rouse(c *conn) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pinging != c { // heard looks behind that whether it is ending
		d.wakeLocked(c.number)
	}
}

func (d *dozer) wakeLocked(number int64) {
	c := d.dozing[number]
	if c == nil {
		return
	}
	delete(d.dozing, number)
	d.controlLocked(c.Conn.(syscall.Conn), syscall.EPOLL_CTL_DEL, nil) // one that is closed has left by itself
	go d.wake(c)
}

// controlLocked says whether it could be done.
func (d *dozer) controlLocked(sock syscall.Conn, op int, event *syscall.EpollEvent) bool {
	raw, err := sock.SyscallConn()
	if err != nil {
		return false
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		e := d.poll.Control(func(poll uintptr) { failed = syscall.EpollCtl(int(poll), op, int(fd), event) })
		if e != nil {
			failed = e
		}
	})
	return err == nil && failed == nil
}

// heard answers a client that has only pinged, and wakes any other from whom there is something to read.
func (d *dozer) heard(e *syscall.EpollEvent) {
	number := int64(uint32(e.Fd)) | int64(e.Pad)<<32
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.dozing[number]; c != nil && e.Events == syscall.EPOLLIN {
		d.pinging = c
		d.mu.Unlock()
		answered := d.ping(c)
		d.mu.Lock()
		if d.pinging = nil; answered && !c.ending.Load() {
			return
		}
	}
	d.wakeLocked(number)
}

// run hears those from whom there is something to read, until the instance is closed.
func (d *dozer) run(poll syscall.RawConn) {
	defer close(d.done)
	var events [64]syscall.EpollEvent
	for {
		n := 0
		var waitErr error
		err := poll.Read(func(fd uintptr) bool {
			for {
				if n, waitErr = syscall.EpollWait(int(fd), events[:], 0); waitErr != syscall.EINTR {
					return n != 0
				}
			}
		})
		if err != nil {
			return
		}
		if waitErr != nil {
			d.giveUp(waitErr)
			return
		}
		for i := range events[:n] {
			d.heard(&events[i])
		}
	}
}

// giveUp wakes all: nobody would notice any more what they send.
func (d *dozer) giveUp(err error) {
	d.log.Warn("silent clients can no longer be watched together: each costs some 3 KB more", "err", os.NewSyscallError("epoll_wait", err))
	d.mu.Lock()
	defer d.mu.Unlock()
	for number := range d.dozing {
		d.wakeLocked(number)
	}
	d.poll = nil
}

// close ends it. Nothing may doze any more.
func (d *dozer) close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	file := d.file
	d.started, d.file, d.poll = true, nil, nil
	d.mu.Unlock()
	if file != nil {
		_ = file.Close()
		<-d.done
	}
}

// takePing takes a ping from the socket if that is all that has come, and nothing otherwise.
func (c *conn) takePing() (taken bool) {
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		var b [32]byte // more than a ping
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err != nil || !bytes.Equal(b[:n], ping) {
			return
		}
		n, err = syscall.Read(int(fd), b[:n])
		taken = err == nil && n == len(ping)
	})
	return taken
}
