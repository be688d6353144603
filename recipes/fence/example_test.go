package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"lockkeeper/recipes/fence"
)

func ExampleGate() {
	var gate fence.Gate
	balance := 0
	add := func(n int, token int64) error {
		return gate.Do("account", token, func() error {
			balance += n
			return nil
		})
	}
	fmt.Println(add(10, 33))
	fmt.Println(add(10, 34)) // the next holder
	fmt.Println(add(10, 33)) // the first one wakes up, and does not know yet
	fmt.Println("balance:", balance)

	// Output:
	// <nil>
	// <nil>
	// fence: token 33 for "account" is stale: 34 has been seen
	// balance: 20
}

func ExampleFile() {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tokens")
	for _, token := range []int64{7, 6} {
		file, err := fence.OpenFile(path) // as after a restart
		if err != nil {
			log.Fatal(err)
		}
		err = file.Check("account", token)
		fmt.Println(token, "is stale:", errors.Is(err, fence.ErrStale))
		file.Close()
	}

	// Output:
	// 7 is stale: false
	// 6 is stale: true
}

// The check and the write are one transaction.
func ExampleTable_Do() {
	deposit := func(ctx context.Context, table *fence.Table, token int64, amount int) error {
		return table.Do(ctx, "accounts", token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + ? WHERE id = 1", amount)
			return err
		})
	}
	_ = deposit
}
