package quorum

import (
	"slices"
	"testing"

	"lockkeeper/znode"
)

func key(n uint64) znode.Key { return znode.Key{Session: 1, Generation: 1, Seq: n} }

func taken(o *outbox) string {
	var b []byte
	for _, c := range o.take() {
		b = append(b, c...)
	}
	return string(b)
}

func TestOutboxHandsOverInOrderAndAgain(t *testing.T) {
	o := newOutbox()
	for i, c := range []string{"a", "b", "c"} {
		if !o.add(key(uint64(i+1)), []byte(c), false) {
			t.Fatal("not added")
		}
	}
	if o.add(key(2), []byte("b"), false) {
		t.Fatal("the same command twice")
	}
	if got := taken(o); got != "abc" {
		t.Fatalf("took %q", got)
	}
	o.settle(key(1))
	o.add(key(4), []byte("d"), false)
	if got := taken(o); got != "d" {
		t.Fatalf("took %q", got)
	}
	o.rewind()
	o.settle(key(2)) // the very one that comes next
	if got := taken(o); got != "cd" {
		t.Fatalf("took %q after rewind", got)
	}
	// Two gaps from one round make one more round.
	o.gap(key(3))
	o.gap(key(4))
	if got := taken(o) + "|" + taken(o); got != "cd|" {
		t.Fatalf("took %q after gaps", got)
	}
	for n := range uint64(5) {
		o.settle(key(n))
	}
	if n, size := o.open(); n != 0 || size != 0 || o.first != nil || o.last != nil {
		t.Fatalf("not empty: %d commands, %d bytes", n, size)
	}
}

func TestOutboxBoundsWhatItHolds(t *testing.T) {
	o := newOutbox()
	o.add(key(1), make([]byte, outboxMaxBytes+1), false)
	added := make(chan bool)
	go func() { added <- o.add(key(2), []byte("x"), false) }()
	o.settle(key(1)) // whether it waits already or not, now there is room
	if !<-added {
		t.Fatal("not added")
	}
	o.add(key(3), make([]byte, outboxMaxBytes+1), false)
	go func() { added <- o.add(key(4), []byte("x"), false) }()
	o.close()
	if <-added {
		t.Fatal("added to a full, closed outbox")
	}
}

func TestForwardFrames(t *testing.T) {
	cmds := [][]byte{[]byte("one"), {}, []byte("three")}
	frame := appendCommands(nil, cmds)
	got, err := splitCommands(frame[4:])
	if err != nil || !slices.EqualFunc(got, cmds, slices.Equal) {
		t.Fatalf("%q, %v", got, err)
	}
	for n := 5; n < len(frame); n++ {
		if got, err := splitCommands(frame[4:n]); err == nil && len(got) == len(cmds) {
			t.Fatalf("truncated to %d bytes: %q", n, got)
		}
	}
}

func FuzzSplitCommands(f *testing.F) {
	f.Add(appendCommands(nil, [][]byte{[]byte("one"), {}})[4:])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		cmds, err := splitCommands(b)
		if err == nil && string(appendCommands(nil, cmds)[4:]) != string(b) {
			t.Fatalf("%q does not survive a round trip", b)
		}
	})
}
