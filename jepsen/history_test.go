package jepsen

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// Tee writes the history as WriteOps does.
func TestTee(t *testing.T) {
	var pipe, want bytes.Buffer
	h := NewSharedHistory(Monotonic() - time.Second)
	h.Tee(&pipe)
	for _, f := range []string{FAcquire, FRelease} {
		h.Add(Op{Worker: "w", Kind: Invoke, F: f, Path: "/a b"})
	}
	if err := WriteOps(&want, h.Ops()); err != nil {
		t.Fatal(err)
	}
	if pipe.String() != want.String() || bytes.Count(pipe.Bytes(), []byte("\n")) != 2 {
		t.Errorf("got %s, want %s", &pipe, &want)
	}
	var op Op
	if err := json.NewDecoder(&pipe).Decode(&op); err != nil || op.Time < time.Second || op.F != FAcquire {
		t.Errorf("%v, %v", op, err)
	}
}
