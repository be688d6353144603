package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"lockkeeper/recipes"
)

func exampleServers() []string {
	addr, err := recipes.ExampleServer()
	if err != nil {
		log.Fatal(err)
	}
	return []string{addr}
}

// account is something that several programs change, and that remembers the
// newest fencing token: it refuses the writes of a late holder.
type account struct {
	balance int
	token   int64
}

func (a *account) add(n int, token int64) error {
	if token < a.token {
		return errors.New("stale token")
	}
	a.balance, a.token = a.balance+n, token
	return nil
}

func Example() {
	session, err := recipes.Connect(recipes.Config{
		Servers:        exampleServers(),
		SessionTimeout: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	grant, err := recipes.NewMutex(session, "/example/account", recipes.MutexOptions{}).Lock(ctx)
	if err != nil {
		log.Fatal(err) // not held, and nothing is left behind
	}

	var a account
	for range 3 {
		if !grant.Held() { // long work looks now and then
			break
		}
		if err := a.add(10, grant.Token()); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("balance:", a.balance)

	// nil: the lock was held all the time, and is free now.
	fmt.Println("unlock:", grant.Unlock(ctx))

	// Output:
	// balance: 30
	// unlock: <nil>
}

func ExampleMutex_TryLock() {
	session, err := recipes.Connect(recipes.Config{Servers: exampleServers()})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	ctx := context.Background()
	mutex := recipes.NewMutex(session, "/example/nightly", recipes.MutexOptions{Data: []byte("host-1")})
	grant, err := mutex.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = mutex.TryLock(ctx)
	fmt.Println(errors.Is(err, recipes.ErrLocked))
	if err := grant.Unlock(ctx); err != nil {
		log.Fatal(err)
	}

	// Output:
	// true
}

// A holder that runs other goroutines stops them when the lock is lost.
func ExampleGrant_Lost() {
	session, err := recipes.Connect(recipes.Config{Servers: exampleServers()})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	grant, err := recipes.NewMutex(session, "/example/leader", recipes.MutexOptions{}).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-grant.Lost():
			fmt.Println("stop:", grant.Err())
		case <-ctx.Done():
		}
	}()
	if err := grant.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	<-stopped

	// Output:
	// stop: recipes: released
}
