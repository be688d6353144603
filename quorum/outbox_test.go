package quorum

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/znode"
)

func key(n uint64) znode.Key { return znode.Key{Session: 1, Generation: 1, Seq: n} }

func taken(o *outbox) string {
	var b []byte
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.takeLocked(time.Now()) {
		b = append(b, c...)
	}
	return string(b)
}

func TestOutboxHandsOverInOrderAndAgain(t *testing.T) {
	o := newOutbox()
	for i, c := range []string{"a", "b", "c"} {
		if err := o.add(t.Context(), key(uint64(i+1)), []byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.add(t.Context(), key(2), []byte("b")); err != nil { // once is enough
		t.Fatal(err)
	}
	if got := taken(o); got != "abc" {
		t.Fatalf("took %q", got)
	}
	o.settle(key(1))
	_ = o.add(t.Context(), key(4), []byte("d"))
	if got := taken(o); got != "d" {
		t.Fatalf("took %q", got)
	}
	o.rewind()
	o.settle(key(2)) // the very one that comes next
	if got := taken(o); got != "cd" {
		t.Fatalf("took %q after rewind", got)
	}
	// Two gaps from one round make one more round.
	_ = o.add(t.Context(), key(5), []byte("e"))
	if o.gap(key(4)) || o.gap(key(5)) {
		t.Fatal("a gap before an open command is given up")
	}
	if got := taken(o) + "|" + taken(o); got != "cde|" {
		t.Fatalf("took %q after gaps", got)
	}
	// What has nothing before it can never be applied, and then neither can what follows.
	if !o.gap(key(3)) || !o.gap(key(4)) || o.gap(key(3)) {
		t.Fatal("a gap that stays is not given up, once")
	}
	if o.rewind(); taken(o) != "e" {
		t.Fatal("what was given up is sent again")
	}
	for n := range uint64(6) {
		o.settle(key(n))
	}
	if n, size := o.open(); n != 0 || size != 0 || o.first != nil || o.last != nil {
		t.Fatalf("not empty: %d commands, %d bytes", n, size)
	}
}

// A command that the leader refuses is known by its number on the way, and forgotten.
func TestOutboxForgetsWhatIsRefused(t *testing.T) {
	o := newOutbox()
	for n := range uint64(4) {
		_ = o.add(t.Context(), key(n), []byte{byte('a' + n)})
	}
	taken(o)
	o.settle(key(1))
	if k, ok := o.refuse(2); !ok || k != key(2) {
		t.Fatalf("refused %v, %v", k, ok)
	}
	if _, ok := o.refuse(1); ok {
		t.Fatal("a command that has been applied is refused")
	}
	o.rewind()
	if _, ok := o.refuse(0); ok {
		t.Fatal("a number of an earlier round is taken for one of the present")
	}
	if got := taken(o); got != "ad" {
		t.Fatalf("took %q", got)
	}
}

func TestOutboxBoundsWhatItHolds(t *testing.T) {
	o := newOutbox()
	add := func(ctx context.Context, n uint64, size int) chan error {
		added := make(chan error, 1)
		go func() { added <- o.add(ctx, key(n), make([]byte, size)) }()
		return added
	}
	if err := <-add(t.Context(), 1, outboxMaxBytes+1); err != nil {
		t.Fatal(err)
	}
	waits := add(t.Context(), 2, 1)
	o.settle(key(1)) // whether it waits already or not, now there is room
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	if err := <-add(t.Context(), 3, outboxMaxBytes+1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits = add(ctx, 4, 1)
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Fatalf("added to a full outbox: %v", err)
	}
	waits = add(t.Context(), 5, 1)
	o.close()
	if err := <-waits; !errors.Is(err, errStopped) {
		t.Fatalf("added to a full, closed outbox: %v", err)
	}
}

// While there is a way to the leader, the goroutine that adds a command sends it; what others add
// while it is at it goes next, in order; and when the way ends, nobody uses it any more.
func TestOutboxIsHandedOverByWhoAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		_ = o.add(t.Context(), key(1), []byte("a"))
		var sent []string
		held, broken := make(chan struct{}), errors.New("broken")
		way := make(chan error, 1)
		go func() {
			way <- o.sendTo(t.Context(), false, func(cmds [][]byte) error {
				all := string(slices.Concat(cmds...))
				sent = append(sent, all)
				switch all {
				case "b":
					<-held
				case "e":
					return broken
				}
				return nil
			})
		}()
		synctest.Wait()
		go func() { _ = o.add(t.Context(), key(2), []byte("b")) }()
		synctest.Wait()
		_ = o.add(t.Context(), key(3), []byte("c"))
		_ = o.add(t.Context(), key(4), []byte("d"))
		close(held)
		synctest.Wait()
		if want := []string{"a", "b", "cd"}; !slices.Equal(sent, want) {
			t.Fatalf("sent %q, want %q", sent, want)
		}
		_ = o.add(t.Context(), key(5), []byte("e"))
		if err := <-way; err != broken {
			t.Fatalf("the way ended with %v", err)
		}
		_ = o.add(t.Context(), key(6), []byte("f"))
		synctest.Wait()
		if want := []string{"a", "b", "cd", "e"}; !slices.Equal(sent, want) {
			t.Fatalf("sent %q, want %q", sent, want)
		}
	})
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

// FuzzForwardFrame decodes what a peer may send on a forward stream.
func FuzzForwardFrame(f *testing.F) {
	f.Add(appendCommands(nil, [][]byte{createSession(9).Append(nil), sequential(9, 1, "/n-").Append(nil)})[4:])
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, frame []byte) {
		cmds, err := splitCommands(frame)
		if err != nil {
			return
		}
		good, err := checkForwarded(cmds)
		if err != nil && strings.Contains(err.Error(), "decoding it") {
			t.Errorf("panic: %v", err)
		}
		if err := znode.CheckEntry(znode.AppendEntry(nil, znode.Stamp{TimeMs: 1}, cmds[:good])); err != nil {
			t.Errorf("an entry with the commands cannot be applied: %v", err)
		}
	})
}

// FuzzTransfer reads what a peer may send on a transfer stream.
func FuzzTransfer(f *testing.F) {
	f.Add(transferRequest(NoMember, ""))
	f.Add(transferRequest(3, "digest super:x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if to, proof, err := readTransfer(bytes.NewReader(b)); err == nil && to != NoMember && !bytes.HasPrefix(b, transferRequest(to, proof)) {
			t.Errorf("%x read as %d, %q", b, to, proof)
		}
	})
}

// open is the number of commands that have not been applied, and their size in bytes.
func (o *outbox) open() (commands, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byKey), o.size
}
