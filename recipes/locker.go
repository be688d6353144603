package recipes

import "context"

// Locker is a lock, whatever recipe: [Mutex], [RWMutex] and its RLocker,
// [SimpleMutex], [Semaphore].
type Locker interface {
	// Lock waits until the lock is held; see [Mutex.Lock].
	Lock(ctx context.Context) (*Grant, error)
	// TryLock acquires the lock or returns ErrLocked; see [Mutex.TryLock].
	TryLock(ctx context.Context) (*Grant, error)
	// Path returns the path of the lock.
	Path() string
}

var (
	_ Locker = (*Mutex)(nil)
	_ Locker = (*RWMutex)(nil)
	_ Locker = (*SimpleMutex)(nil)
	_ Locker = (*Semaphore)(nil)
)
