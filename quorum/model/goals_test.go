package model

import "testing"

// TestGoals reaches each of the rare states.
func TestGoals(t *testing.T) {
	for _, g := range Goals {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			m := New(0, g.Bounds)
			r, err := Reach(t.Context(), m, g.Reached)
			if err != nil || !r.Reached || r.Broken != Kept {
				t.Fatalf("not reached in %d states: %v, %v", r.States, r.Broken, err)
			}
			t.Logf("%d states, %d steps\n%s", r.States, len(r.Script), m.Text(r.Script))
		})
	}
}
