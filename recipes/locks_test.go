package recipes

import (
	"context"
	"time"
)

// testGrant is the part of a grant that the tests of every lock need.
type testGrant interface {
	Held() bool
	Err() error
	Token() int64
	Node() string
	Unlock(ctx context.Context) error
}

// testLocker is a lock of any recipe.
type testLocker interface {
	Lock(ctx context.Context) (testGrant, error)
	TryLock(ctx context.Context) (testGrant, error)
}

// testLock is a way for two contenders to exclude each other.
type testLock struct {
	name string
	a, b func(s *Session, path string) testLocker

	// waiting is where, below the path, one who waits makes the second node of two;
	// "-" if that cannot be seen. queues are where all nodes are; nil stands for
	// the path itself.
	waiting string
	queues  []string
}

// dirs are the queues of a lock.
func (l testLock) dirs(path string) (dirs []string) {
	if l.queues == nil {
		return []string{path}
	}
	for _, q := range l.queues {
		dirs = append(dirs, path+q)
	}
	return dirs
}

const testPath = "/locks/a"

// testLocks are all the recipes with which two contenders exclude each other.
var testLocks = []testLock{
	both("mutex", func(s *Session, path string) Locker { return NewMutex(s, path, MutexOptions{}) }),
	both("delay", func(s *Session, path string) Locker {
		return NewMutex(s, path, MutexOptions{LockDelay: time.Second})
	}),
	both("write", func(s *Session, path string) Locker { return NewRWMutex(s, path, MutexOptions{}) }),
	{
		name: "read-write",
		a: func(s *Session, path string) testLocker {
			return plain{NewRWMutex(s, path, MutexOptions{LockDelay: time.Second}).RLocker()}
		},
		b: func(s *Session, path string) testLocker {
			return plain{NewRWMutex(s, path, MutexOptions{LockDelay: time.Second})}
		},
	},
	{
		name: "write-read",
		a:    func(s *Session, path string) testLocker { return plain{NewRWMutex(s, path, MutexOptions{})} },
		b:    func(s *Session, path string) testLocker { return plain{NewRWMutex(s, path, MutexOptions{}).RLocker()} },
	},
	{name: "semaphore", a: testSemaphore, b: testSemaphore, waiting: "/leases", queues: []string{"/locks", "/leases"}},
	{name: "simple", a: testSimple, b: testSimple, waiting: "-"},
	{name: "majority", a: testMajority, b: testMajority},
	{name: "multi", a: testMulti, b: testMulti, queues: []string{"", "b", "c/locks", "c/leases"}},
}

func both(name string, make func(s *Session, path string) Locker) testLock {
	f := func(s *Session, path string) testLocker { return plain{make(s, path)} }
	return testLock{name: name, a: f, b: f}
}

func testSemaphore(s *Session, path string) testLocker {
	return plain{NewSemaphore(s, path, SemaphoreOptions{Leases: 1, CountPath: path + "/count"})}
}

func testSimple(s *Session, path string) testLocker {
	return plain{NewSimpleMutex(s, path+"/node", MutexOptions{})}
}

func testMulti(s *Session, path string) testLocker {
	return several{NewMultiMutex(
		NewSemaphore(s, path+"c", SemaphoreOptions{Leases: 1}),
		NewMutex(s, path+"b", MutexOptions{}),
		NewRWMutex(s, path, MutexOptions{}))}
}

// testMajority is a majority of one: other tests try its parts
// with more of them.
func testMajority(s *Session, path string) testLocker {
	return several{NewMajorityMutex(path, MajorityOptions{}, s)}
}

// plain makes a testLocker of a Locker.
type plain struct{ l Locker }

func (p plain) Lock(ctx context.Context) (testGrant, error)    { return orNone(p.l.Lock(ctx)) }
func (p plain) TryLock(ctx context.Context) (testGrant, error) { return orNone(p.l.TryLock(ctx)) }

func orNone(g *Grant, err error) (testGrant, error) {
	if err != nil {
		return nil, err
	}
	return g, nil
}

// several makes a testLocker of a MultiMutex or a MajorityMutex. It has the token of
// its first lock.
type several struct {
	m interface {
		Lock(ctx context.Context) (*MultiGrant, error)
		TryLock(ctx context.Context) (*MultiGrant, error)
	}
}

type severalGrant struct{ *MultiGrant }

func (g severalGrant) Token() int64 { return g.Tokens()[0] }
func (g severalGrant) Node() string { return g.Grants()[0].Node() }

func (s several) Lock(ctx context.Context) (testGrant, error) { return severalOrNone(s.m.Lock(ctx)) }

func (s several) TryLock(ctx context.Context) (testGrant, error) {
	return severalOrNone(s.m.TryLock(ctx))
}

func severalOrNone(g *MultiGrant, err error) (testGrant, error) {
	if err != nil {
		return nil, err
	}
	return severalGrant{g}, nil
}
