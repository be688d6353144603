package locktest_test

import (
	"context"
	"testing"

	"lockkeeper/locktest"
	"lockkeeper/recipes"
)

// A test of a program that takes a lock. In a test file its name is TestReportTakesItsLock.
func Example() {
	_ = func(t *testing.T) {
		session, err := recipes.Connect(recipes.Config{Servers: []string{locktest.Server(t)}})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		grant, err := recipes.NewMutex(session, "/locks/report", recipes.MutexOptions{}).Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer grant.Unlock(context.Background())
	}
}

// A lock outlives the leader of the cluster that keeps it.
func ExampleCluster_Kill() {
	_ = func(t *testing.T) {
		cluster := locktest.Start(t, 3)
		session, err := recipes.Connect(recipes.Config{Servers: cluster.Servers()})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		grant, err := recipes.NewMutex(session, "/locks/report", recipes.MutexOptions{}).Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		cluster.Kill(cluster.Leader())
		cluster.Leader() // waits for the next one
		if !grant.Held() {
			t.Error("the lock was lost with the leader")
		}
	}
}
