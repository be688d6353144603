package fences

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"lockkeeper/recipes/fence"
)

// A twin is a check with a bug, in the same table: testOrders has to find it.
type twin struct {
	name  string
	check func(s *stage) check
	// found are the databases and levels at which the bug shows.
	found map[string][]string
}

var twins = []twin{
	{
		// The row is written only if its token changes, and a plain SELECT of it counts. At
		// REPEATABLE READ that is the snapshot's token. This was CheckTx.
		name: "equal by snapshot",
		check: func(s *stage) check {
			return func(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
				result, err := tx.ExecContext(ctx, s.statement("UPDATE "+s.name+" SET token = ? WHERE resource = ? AND token <= ?"), token, resource, token)
				if err != nil {
					return err
				}
				if n, err := result.RowsAffected(); err != nil || n > 0 {
					return err
				}
				newest, err := s.count(ctx, tx, "SELECT token FROM "+s.name+" WHERE resource = ?", resource)
				return s.refuse(ctx, tx, resource, token, newest, err)
			}
		},
		found: map[string][]string{"mariadb": {"repeatable read"}},
	},
	{
		// The row is read before it is written, and is not locked in between.
		name: "read, then write",
		check: func(s *stage) check {
			return func(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
				newest, err := s.count(ctx, tx, "SELECT token FROM "+s.name+" WHERE resource = ?", resource)
				if err := s.refuse(ctx, tx, resource, token, newest, err); err != nil || newest == 0 {
					return err
				}
				return s.do(ctx, tx, "UPDATE "+s.name+" SET token = ? WHERE resource = ?", token, resource)
			}
		},
		found: map[string][]string{"mariadb": {"read uncommitted", "read committed", "repeatable read"}, "postgresql": {"read committed"}},
	},
	{
		// An equal token is accepted, and nothing is written.
		name: "no lock for an equal token",
		check: func(s *stage) check {
			return func(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
				newest, err := s.count(ctx, tx, "SELECT token FROM "+s.name+" WHERE resource = ?", resource)
				if newest == token {
					return err
				}
				return s.table.CheckTx(ctx, tx, resource, token)
			}
		},
		found: map[string][]string{"mariadb": {"read committed", "snapshot"}, "postgresql": {"read committed", "repeatable read"}},
	},
}

// refuse is the rule for the newest token that a twin has read. If there is no row, it inserts one.
func (s *stage) refuse(ctx context.Context, tx *sql.Tx, resource string, token, newest int64, err error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.do(ctx, tx, "INSERT INTO "+s.name+" (id, resource, token, checks) VALUES (?, ?, ?, 1)", resource, resource, token)
	case err == nil && token < newest:
		return &fence.StaleError{Resource: resource, Token: token, Newest: newest}
	}
	return err
}

// The orders catch checks that do not exclude.
func testTwins(t *testing.T, d *database) {
	for _, w := range twins {
		for _, l := range d.levels {
			if !slices.Contains(w.found[d.name], l.name) {
				continue
			}
			t.Run(w.name+", "+l.name, func(t *testing.T) {
				if _, wrong := playAll(t, d, l, w.name+", "+l.name, &w); len(wrong) == 0 {
					t.Error("not found")
				} else {
					t.Log(wrong[0])
				}
			})
		}
	}
}
