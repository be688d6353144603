package bench

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestEach(t *testing.T) {
	const n = 200
	r := &run{}
	var calls [n]atomic.Int32
	if err := r.each(n, func(i int) error { calls[i].Add(1); return nil }); err != nil {
		t.Error(err)
	}
	for i := range calls {
		if c := calls[i].Load(); c != 1 {
			t.Errorf("%d calls for %d", c, i)
		}
	}
	var all atomic.Int32
	broken := errors.New("broken")
	err := r.each(1_000_000, func(i int) error {
		if all.Add(1) > 100 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || all.Load() > 1000 {
		t.Errorf("%v after %d calls", err, all.Load())
	}
}
