package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"lockkeeper/recipes"
)

// connect is recipes.Connect to the server of the examples.
func connect() *recipes.Session {
	session, err := recipes.Connect(recipes.Config{Servers: exampleServers()})
	if err != nil {
		log.Fatal(err)
	}
	return session
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleElection() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	election := recipes.NewElection(session, "/example/election", recipes.ElectionOptions{})
	leadership, err := election.Campaign(ctx, []byte("host-1:8080"))
	must(err)
	leader, err := election.Leader(ctx)
	must(err)
	fmt.Printf("%s leads: %v\n", leader.Data, leader.Token == leadership.Token())

	// Work, for as long as leadership.Lost() is not closed.

	must(leadership.Resign(ctx))
	_, err = election.Leader(ctx)
	fmt.Println("nobody leads:", errors.Is(err, recipes.ErrNoLeader))

	// Output:
	// host-1:8080 leads: true
	// nobody leads: true
}

func ExampleElection_Observe() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	election := recipes.NewElection(session, "/example/observe", recipes.ElectionOptions{})
	var leadership *recipes.Leadership
	for leader, err := range election.Observe(ctx) {
		must(err)
		switch {
		case leader.Node != "":
			fmt.Printf("%s leads\n", leader.Data)
			if string(leader.Data) == "host-1" {
				must(leadership.Proclaim(ctx, []byte("host-1, ready")))
			} else {
				must(leadership.Resign(ctx))
			}
		case leadership == nil:
			fmt.Println("nobody leads yet")
			leadership, err = election.Campaign(ctx, []byte("host-1"))
			must(err)
		default:
			fmt.Println("nobody leads any more")
			return
		}
	}

	// Output:
	// nobody leads yet
	// host-1 leads
	// host-1, ready leads
	// nobody leads any more
}

func ExampleBarrier() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	barrier := recipes.NewBarrier(session, "/example/maintenance", nil)
	must(barrier.Set(ctx))
	through := make(chan error)
	go func() { through <- barrier.Wait(ctx) }()
	fmt.Println("maintenance is over")
	must(barrier.Remove(ctx))
	must(<-through)
	fmt.Println("through")

	// Output:
	// maintenance is over
	// through
}

func ExampleDoubleBarrier() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	const workers = 3
	results, done := make(chan int, workers), make(chan error)
	for i := range workers {
		go func() {
			barrier := recipes.NewDoubleBarrier(session, "/example/together", workers, nil)
			in, err := barrier.Enter(ctx, nil) // all three are there now
			if err == nil {
				results <- i
				err = in.Leave(ctx) // all three have their result
			}
			done <- err
		}()
	}
	must(<-done)
	fmt.Println("results when the first one is out:", len(results))
	must(<-done)
	must(<-done)

	// Output:
	// results when the first one is out: 3
}

func ExampleCounter() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	counter := recipes.NewCounter(session, "/example/tickets", recipes.CounterOptions{})
	_, err := counter.Set(ctx, 0)
	must(err)
	n, err := counter.Add(ctx, 5)
	must(err)
	ok, err := counter.CompareAndSet(ctx, 4, 100)
	must(err)
	fmt.Println(n, ok)

	// Output:
	// 5 false
}

func ExampleQueue() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	queue := recipes.NewQueue(session, "/example/jobs", nil)
	must(queue.Put(ctx,
		recipes.Entry{Data: []byte("mail")},
		recipes.Entry{Data: []byte("alarm"), Priority: -10},
	))
	for range 2 {
		item, err := queue.Take(ctx)
		must(err)
		fmt.Printf("%s, attempt %d\n", item.Data(), item.Attempt())
		must(item.Return(ctx)) // not now: it comes back

		item, err = queue.Take(ctx)
		must(err)
		fmt.Printf("%s, attempt %d\n", item.Data(), item.Attempt())
		must(item.Done(ctx))
	}

	// Output:
	// alarm, attempt 1
	// alarm, attempt 2
	// mail, attempt 1
	// mail, attempt 2
}

func ExampleGroup() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	group := recipes.NewGroup(session, "/example/workers", nil)
	membership, err := group.Join(ctx, "worker-1", []byte("10.0.0.1"))
	must(err)
	for members, err := range group.Watch(ctx) {
		must(err)
		if len(members) == 0 {
			fmt.Println("nobody")
			break
		}
		fmt.Printf("%s at %s\n", members[0].ID, members[0].Data)
		must(membership.Leave(ctx))
	}

	// Output:
	// worker-1 at 10.0.0.1
	// nobody
}

func ExampleOptimisticUpdate() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	options := recipes.UpdateOptions{Create: true}
	add := func(old []byte) ([]byte, error) {
		if len(old) > 1000 {
			return nil, errors.New("full") // is returned, and nothing is written
		}
		return append(old, "word "...), nil
	}
	for range 2 {
		updated, err := recipes.OptimisticUpdate(ctx, session, "/example/words", options, add)
		must(err)
		fmt.Println(len(updated.New)-len(updated.Old), "bytes more")
	}

	// Output:
	// 5 bytes more
	// 5 bytes more
}

// Again takes a recipe up once more in the next session, if the one that it was
// used in expires.
func ExampleAgain() {
	session := connect()
	defer session.Close()
	ctx := context.Background()

	group := recipes.NewGroup(session, "/example/again", nil)
	err := recipes.Again(ctx, session, func(ctx context.Context) error {
		membership, err := group.Join(ctx, "", nil)
		if err != nil {
			return err
		}
		fmt.Println("member")
		work := make(chan struct{})
		close(work)
		select {
		case <-membership.Lost():
			defer membership.Leave(ctx)
			return membership.Err() // ErrExpired or ErrSilent: join again
		case <-work:
			return membership.Leave(ctx)
		}
	})
	must(err)

	// Output:
	// member
}
