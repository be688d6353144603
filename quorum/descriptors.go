package quorum

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// descriptorWait is how long a write of the log waits for a file descriptor. Then the member gives up all that it has, as when its disk
	// is full, and starts anew when there is one: nobody's writes are done while a leader waits.
	descriptorWait  = 2 * time.Second
	descriptorPause = 20 * time.Millisecond
)

// IsStarved says whether err is for want of a file descriptor, of the process or of the system.
func IsStarved(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// descriptorWaits repeats what has failed for want of a file descriptor, and counts that.
type descriptorWaits struct {
	count atomic.Int64 // how often something had to wait

	mu     sync.Mutex
	notify func(error)
}

// retry calls open until it fails for another reason or not at all, for descriptorWait at most. What open does in vain must leave nothing
// behind.
func (w *descriptorWaits) retry(open func() error) error {
	err := open()
	if !IsStarved(err) {
		return err
	}
	w.count.Add(1)
	w.mu.Lock()
	notify := w.notify
	w.mu.Unlock()
	if notify != nil {
		notify(err)
	}
	for start := time.Now(); IsStarved(err) && time.Since(start) < descriptorWait; err = open() {
		time.Sleep(descriptorPause)
	}
	return err
}

// descriptorWaiter is a log store that waits for file descriptors.
type descriptorWaiter interface {
	// NotifyStarved has f called, by the goroutine that writes, whenever a write begins to wait.
	NotifyStarved(f func(error))
	// DescriptorWaits is how often that was.
	DescriptorWaits() int64
}

var _ descriptorWaiter = (*segmentLog)(nil)

// NotifyStarved has f called whenever a write begins to wait for a file descriptor.
func (l *segmentLog) NotifyStarved(f func(error)) {
	l.files.mu.Lock()
	defer l.files.mu.Unlock()
	l.files.notify = f
}

// DescriptorWaits is how often a write had to wait for a file descriptor.
func (l *segmentLog) DescriptorWaits() int64 { return l.files.count.Load() }
