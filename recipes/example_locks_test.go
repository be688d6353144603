package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

// exampleSession connects, for the examples.
func exampleSession() *recipes.Session {
	session, err := recipes.Connect(recipes.Config{Servers: exampleServers()})
	if err != nil {
		log.Fatal(err)
	}
	return session
}

func ExampleRWMutex() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	config := recipes.NewRWMutex(session, "/example/config", recipes.MutexOptions{})

	one, err := config.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := config.RLock(ctx) // shares it
	if err != nil {
		log.Fatal(err)
	}
	_, err = config.TryLock(ctx)
	fmt.Println("to write:", errors.Is(err, recipes.ErrLocked))
	fmt.Println("upgrade refused:", errors.Is(one.Upgrade(ctx), recipes.ErrUpgrade))
	one.Unlock(ctx)
	two.Unlock(ctx)

	// Output:
	// to write: true
	// upgrade refused: true
}

// A writer that has written, and wants to go on reading its own data.
func ExampleGrant_Downgrade() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	index := recipes.NewRWMutex(session, "/example/index", recipes.MutexOptions{})

	grant, err := index.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(grant.Kind())
	if err := grant.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(grant.Kind())
	other, err := index.TryRLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	other.Unlock(ctx)
	grant.Unlock(ctx)

	// Output:
	// write
	// read
}

// At most two downloads at a time, over all programs. An operator can change the
// number while they run.
func ExampleSemaphore() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	downloads := recipes.NewSemaphore(session, "/example/downloads", recipes.SemaphoreOptions{
		CountPath: "/example/downloads-limit",
	})
	if err := downloads.SetLeases(ctx, 2); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if _, err := downloads.Lock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	_, err := downloads.TryLock(ctx)
	fmt.Println("a third:", errors.Is(err, recipes.ErrLocked))
	if err := downloads.SetLeases(ctx, 3); err != nil {
		log.Fatal(err)
	}
	_, err = downloads.TryLock(ctx)
	fmt.Println("a third, of three:", err)

	// Output:
	// a third: true
	// a third, of three: <nil>
}

func ExampleSimpleMutex() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	grant, err := recipes.NewSimpleMutex(session, "/example/simple", recipes.MutexOptions{}).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(grant.Node())
	grant.Unlock(ctx)

	// Output:
	// /example/simple
}

// To move money, both accounts are locked. Another program that moves it the other
// way cannot get into a circle with this one.
func ExampleMultiMutex() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	from := recipes.NewMutex(session, "/example/accounts/b", recipes.MutexOptions{})
	to := recipes.NewMutex(session, "/example/accounts/a", recipes.MutexOptions{})
	grant, err := recipes.NewMultiMutex(from, to).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range grant.Grants() {
		fmt.Println(g.Path())
	}
	fmt.Println(grant.Unlock(ctx))

	// Output:
	// /example/accounts/a
	// /example/accounts/b
	// <nil>
}

func ExampleMajorityMutex() {
	clusters := [][]string{exampleServers()} // in earnest three, or five
	var sessions []*recipes.Session
	for _, servers := range clusters {
		session, err := recipes.Connect(recipes.Config{Servers: servers})
		if err != nil {
			log.Fatal(err)
		}
		defer session.Close()
		sessions = append(sessions, session)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	grant, err := recipes.NewMajorityMutex("/example/majority", recipes.MajorityOptions{}, sessions...).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tokens, one per cluster:", len(grant.Tokens()))
	fmt.Println(grant.Unlock(ctx))

	// Output:
	// tokens, one per cluster: 1
	// <nil>
}

// A function that locks for itself, and is called by one that holds the lock.
func ExampleMutex_Handle() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	handle := recipes.NewMutex(session, "/example/reentrant", recipes.MutexOptions{}).Handle()

	inner := func() {
		grant, err := handle.Lock(ctx) // at once: the handle holds it
		if err != nil {
			log.Fatal(err)
		}
		defer handle.Unlock(ctx)
		fmt.Println("inside:", grant.Held())
	}
	grant, err := handle.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	inner()
	fmt.Println("still held:", grant.Held())
	fmt.Println(handle.Unlock(ctx))

	// Output:
	// inside: true
	// still held: true
	// <nil>
}

// Data in the cluster that only the holder may change, even if the holder has been
// asleep and does not know that it is one no longer.
func ExampleGrant_Guard() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	grant, err := recipes.NewMutex(session, "/example/guarded", recipes.MutexOptions{}).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	write := &zk.CreateRequest{
		Path: "/example/guarded-data-", Data: []byte("1"),
		Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential,
	}
	_, err = grant.Guard(ctx, write)
	fmt.Println(err)
	grant.Unlock(ctx)
	_, err = grant.Guard(ctx, write)
	fmt.Println(errors.Is(err, recipes.ErrReleased))

	// Output:
	// <nil>
	// true
}

func ExampleSession_Contenders() {
	session := exampleSession()
	defer session.Close()
	ctx := context.Background()
	backup := recipes.NewMutex(session, "/example/backup", recipes.MutexOptions{Note: "nightly backup"})
	grant, err := backup.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	contenders, err := session.Contenders(ctx, "/example/backup")
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range contenders {
		fmt.Println(c.Held, c.Kind, c.Library, c.Info.Note)
	}
	grant.Unlock(ctx)

	// Output:
	// true write lockkeeper nightly backup
}

// A service that works for as long as it holds the lock, and takes it again when it
// was lost.
func ExampleHold() {
	session := exampleSession()
	defer session.Close()
	mutex := recipes.NewMutex(session, "/example/service", recipes.MutexOptions{})
	jobs := []string{"first", "second"}
	err := recipes.Hold(context.Background(), mutex, func(ctx context.Context, grant *recipes.Grant) error {
		for len(jobs) > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx) // lost: called again with the next grant
			}
			fmt.Println(jobs[0])
			jobs = jobs[1:]
		}
		return nil
	})
	fmt.Println(err)

	// Output:
	// first
	// second
	// <nil>
}

// A program that is killed and started again in place has the lock that it held, with its token.
func ExampleConfig_sessionFile() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	start := func() (*recipes.Session, *recipes.Grant) {
		session, err := recipes.Connect(recipes.Config{
			Servers:     exampleServers(),
			SessionFile: filepath.Join(dir, "session"),
		})
		if err != nil {
			log.Fatal(err)
		}
		before, err := session.Resumed(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, h := range before.Lost {
			fmt.Println("lost meanwhile:", h.Path, h.Token)
		}
		grant, err := recipes.NewMutex(session, "/example/restarted", recipes.MutexOptions{}).Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return session, grant
	}

	session, first := start()
	fmt.Println("resumed:", first.Resumed())
	session.Detach() // as kill -9 would, it leaves the session to the next process

	session, second := start()
	defer session.Close()
	fmt.Println("resumed:", second.Resumed(), "with the same token:", second.Token() == first.Token())

	// Output:
	// resumed: false
	// resumed: true with the same token: true
}
