package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asyncWriter writes to files past the page cache without holding up the threads of this process: Linux does it on its own
// (io_submit(2)), and the goroutine waits as it would for a connection. One that is in a system call keeps, in the runtime's sense, its
// processor, and whatever else is to be done there waits until it is taken away from it, or another thread has come to help; both cost
// more than the call. The runtime is not told of the call that begins a write, as with sockets (internal/rawsock), unless that has to wait.
//
// That such a write to a file with O_DSYNC is on the disk when it is through is up to each file system. Ext4 and XFS see to it (Linux's
// iomap_dio_complete); it is for those two only, where the flushes were counted.
//
// Nil is one that writes in the ordinary way. It is used by one goroutine at a time.
type asyncWriter struct {
	context uintptr
	request iocb
	events  *os.File // an eventfd(2) that is told when a write is through
	wait    syscall.RawConn
}

// iocb and ioEvent are those of io_submit(2) and io_getevents(2).
type (
	iocb struct {
		_         uint64 // data
		_, flags  uint32 // key, RWF_ and so on
		opcode    uint16
		_         int16 // priority
		file      uint32
		buf       uint64
		length    uint64
		offset    int64
		_         uint64
		options   uint32 // IOCB_FLAG_
		eventFile uint32
	}
	ioEvent struct {
		data, request uint64
		result, _     int64
	}
)

const (
	iocbWrite   = 1 // IOCB_CMD_PWRITE
	iocbEventFd = 1 // IOCB_FLAG_RESFD
	// asyncWrites is how many writes may be under way.
	asyncWrites = 1
)

// newAsyncWriter makes one for files in dir. It returns nil for a file system that it is not for, and where the system does not let this
// process have one.
func newAsyncWriter(dir string) *asyncWriter {
	var on unix.Statfs_t
	if err := unix.Statfs(dir, &on); err != nil || on.Type != unix.EXT4_SUPER_MAGIC && on.Type != unix.XFS_SUPER_MAGIC {
		return nil
	}
	w := &asyncWriter{}
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, asyncWrites, uintptr(unsafe.Pointer(&w.context)), 0); e != 0 {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err == nil {
		w.events = os.NewFile(uintptr(fd), "eventfd")
		w.wait, err = w.events.SyscallConn()
	}
	if err != nil {
		w.close()
		return nil
	}
	w.request = iocb{opcode: iocbWrite, options: iocbEventFd, eventFile: uint32(fd)}
	return w
}

// writeAt is f.WriteAt for a file that is open with O_DIRECT, which makes the write asynchronous. Nobody may change b until it returns.
func (w *asyncWriter) writeAt(f *os.File, b []byte, at int64) error {
	if w == nil {
		_, err := f.WriteAt(b, at)
		return err
	}
	n, err := w.submit(f, b, at, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		n, err = w.submit(f, b, at, 0) // it has to wait for something, or does not know of the flag
	}
	switch {
	case errors.Is(err, unix.EAGAIN):
		n = 0 // no room in the kernel's memory, or its queues
	case err != nil:
		return &fs.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	if n < len(b) {
		_, err = f.WriteAt(b[n:], at+int64(n))
		return err
	}
	return nil
}

// submit has the kernel write b and waits until it has. It returns how much is written. With RWF_NOWAIT among the flags the system call
// does not wait for anything, is one that the runtime need not know of, and may fail with EAGAIN.
func (w *asyncWriter) submit(f *os.File, b []byte, at int64, flags uint32) (n int, err error) {
	file, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	w.request.flags = flags
	w.request.buf, w.request.length, w.request.offset = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), uint64(len(b)), at
	submitted := false
	var event ioEvent
	// Read calls this before it waits, when it will not miss what comes, and after each event. Nobody reads the eventfd: that something
	// has been added to it is an event, whatever was in it.
	waitErr := w.wait.Read(func(uintptr) bool {
		if !submitted {
			submitted = true
			controlErr := file.Control(func(fd uintptr) {
				w.request.file = uint32(fd)
				if e := w.call(); e != 0 {
					err = e
				}
			})
			err = errors.Join(err, controlErr)
			return err != nil
		}
		through, _, e := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, w.context, 0, 1, uintptr(unsafe.Pointer(&event)), 0, 0)
		if e != 0 && e != unix.EINTR {
			err = fmt.Errorf("io_getevents: %w", e)
		}
		return through == 1 || err != nil
	})
	runtime.KeepAlive(b)
	switch {
	case err != nil:
		return 0, err
	case waitErr != nil:
		return 0, waitErr
	case event.result < 0:
		return 0, unix.Errno(-event.result)
	}
	return int(event.result), nil
}

// call submits the request.
func (w *asyncWriter) call() (e unix.Errno) {
	request := &w.request
	if request.flags&unix.RWF_NOWAIT != 0 {
		_, _, e = unix.RawSyscall(unix.SYS_IO_SUBMIT, w.context, 1, uintptr(unsafe.Pointer(&request)))
	} else {
		_, _, e = unix.Syscall(unix.SYS_IO_SUBMIT, w.context, 1, uintptr(unsafe.Pointer(&request)))
	}
	return e
}

func (w *asyncWriter) close() {
	if w == nil {
		return
	}
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, w.context, 0, 0)
	if w.events != nil {
		_ = w.events.Close()
	}
}
