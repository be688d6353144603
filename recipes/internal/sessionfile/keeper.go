package sessionfile

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path"
	"slices"
	"sync"

	"lockkeeper/internal/durable"
	"lockkeeper/locknode"
)

// Past is the fate of the session of the previous process.
type Past struct {
	Session   int64  // the session that was taken up; 0: none
	Held      []Held // by the previous process, and still there
	Lost      []Held // by the previous process, and gone
	Refused   bool   // the cluster does not know the session: it has expired, or it never had it
	Elsewhere bool   // the file was written elsewhere, and its session may be in use there
}

// Keeper keeps the file up to date with the session in force, and knows the nodes that the process
// before has left in it. Its methods may be called from any goroutine; those of a nil Keeper, which
// has no file, do nothing.
type Keeper struct {
	file  *File
	log   *slog.Logger
	known chan struct{} // closed when past is known

	// mu guards the fields below. Nothing blocks while it is held.
	mu      sync.Mutex
	state   state
	version uint64   // of the state
	offered bool     // the session of the state is the process's before, and nothing is known of it
	past    Past     // once known is closed
	left    []string // nodes in the session past.Session that nobody has taken up, in order
	stopped bool

	// Lock: writing is taken before mu.
	writing sync.Mutex
	written uint64 // the version that the file has
}

// Open opens the file at path, and makes the process its only user.
func Open(path string, log *slog.Logger) (*Keeper, error) {
	return openOn(path, log, durable.OS{Mode: mode})
}

func openOn(path string, log *slog.Logger, files durable.FS) (*Keeper, error) {
	file, s, err := open(path, files)
	if err != nil {
		return nil, err
	}
	k := &Keeper{file: file, log: log, known: make(chan struct{}), state: s}
	switch {
	case s.session.ID == 0:
		close(k.known)
	case s.place != file.place:
		log.Warn("recipes: the session file is a copy, or of another machine, or of another boot of this one: "+
			"its session is left alone until it expires", "file", path, "session", sessionText(s.session.ID))
		k.state, k.past = state{}, Past{Lost: s.held, Elsewhere: true}
		close(k.known)
	default:
		k.offered = true
	}
	return k, nil
}

// Lock is the open file that keeps others off, for a process that shall go on keeping them off
// after the end of this one. From this call on, the lock ends with the last process that has it.
func (k *Keeper) Lock() *os.File {
	k.file.shared.Store(true)
	return k.file.lock
}

// Known returns a channel that is closed when Past is known.
func (k *Keeper) Known() <-chan struct{} { return k.known }

// Past returns the fate of the session of the previous process, once Known is closed.
func (k *Keeper) Past() Past {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.past
}

// Offer returns the session to attach to, instead of beginning one.
func (k *Keeper) Offer() (s Session, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.session, k.offered
}

// Refused notes that the cluster does not know the session of Offer.
func (k *Keeper) Refused() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.offered {
		return
	}
	k.offered = false
	k.past = Past{Lost: slices.Clone(k.state.held), Refused: true}
	k.log.Warn("recipes: the session of the previous process has expired, or is another cluster's",
		"file", k.file.path, "session", sessionText(k.state.session.ID))
	k.tellLost("the session of the previous process has expired")
	// The file stays until there is another session: should this process end before, the next one
	// says it again.
	close(k.known)
}

// tellLost logs the losses of the previous process.
func (k *Keeper) tellLost(why string) {
	for _, h := range k.past.Lost {
		k.log.Warn("recipes: lost while no process had the session: "+why, "lock", h.Path, "token", h.Token,
			"node", h.Node)
	}
}

// Attached notes the session that a server has granted, with its timeout, and returns the timeout
// to count on. The session is in the file when it returns nil. A session that is offered is
// Resumed, too, before it is used.
func (k *Keeper) Attached(s Session) (timeoutMs int32, err error) {
	k.mu.Lock()
	switch now := &k.state.session; {
	case now.ID != s.ID:
		k.state, k.offered, k.left = state{session: s}, false, nil
		k.version++
	case s.TimeoutMs < now.TimeoutMs:
		now.TimeoutMs = s.TimeoutMs
		k.version++
	}
	timeoutMs = k.state.session.TimeoutMs
	k.mu.Unlock()
	return timeoutMs, k.save()
}

// Resumed notes that the offered session is ours, and its nodes: all of them, by full path.
func (k *Keeper) Resumed(nodes []string) error {
	k.mu.Lock()
	if !k.offered {
		k.mu.Unlock()
		return nil
	}
	k.offered = false
	k.left = slices.Clone(nodes)
	slices.SortFunc(k.left, inOrder)
	k.past.Session = k.state.session.ID
	for _, h := range k.state.held {
		if slices.Contains(nodes, h.Node) {
			k.past.Held = append(k.past.Held, h)
		} else {
			k.past.Lost = append(k.past.Lost, h)
		}
	}
	if len(k.past.Lost) > 0 {
		k.state.held = slices.Clone(k.past.Held)
		k.version++
	}
	k.tellLost("somebody has deleted its node")
	close(k.known)
	k.mu.Unlock()
	return k.save()
}

// inOrder puts the nodes of a queue in the order of the queue.
func inOrder(a, b string) int {
	number := func(node string) int64 {
		if n, ok := locknode.Sequence(path.Base(node)); ok {
			return n
		}
		return math.MaxInt64
	}
	return int(max(-1, min(1, number(a)-number(b))))
}

// TakeUp takes the first node of the session for which fits returns true from those that the
// process before has left, and reports whether that process held something by it. It returns "" if
// there is none, or the session is another one. With onlyHeld it takes none that was not held.
func (k *Keeper) TakeUp(session int64, onlyHeld bool, fits func(node string) bool) (node string, held bool) {
	if k == nil {
		return "", false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.past.Session != session || session == 0 {
		return "", false
	}
	for i, node := range k.left {
		held := k.holdsLocked(node)
		if fits(node) && (held || !onlyHeld) {
			k.left = slices.Delete(k.left, i, i+1)
			return node, held
		}
	}
	return "", false
}

// Left lists the nodes of the session that the previous process has left and nobody has taken up.
func (k *Keeper) Left(session int64) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.past.Session != session {
		return nil
	}
	return slices.Clone(k.left)
}

func (k *Keeper) holdsLocked(node string) bool {
	return slices.ContainsFunc(k.state.held, func(h Held) bool { return h.Node == node })
}

// Hold notes something that is held in a session, for the next process. It is in the file when Hold
// returns. Failures are logged.
func (k *Keeper) Hold(session int64, h Held) {
	k.change(func() bool {
		if k.state.session.ID != session || slices.Contains(k.state.held, h) {
			return false
		}
		k.state.held = append(k.state.held, h)
		return true
	})
}

// Release notes that a node is no longer held.
func (k *Keeper) Release(node string) {
	k.change(func() bool {
		before := len(k.state.held)
		k.state.held = slices.DeleteFunc(k.state.held, func(h Held) bool { return h.Node == node })
		return len(k.state.held) < before
	})
}

// change makes a change of the state, with mu held, and has it written if it reports true.
func (k *Keeper) change(f func() bool) {
	if k == nil {
		return
	}
	k.mu.Lock()
	changed := !k.stopped && f()
	if changed {
		k.version++
	}
	k.mu.Unlock()
	if !changed {
		return
	}
	if err := k.save(); err != nil {
		k.log.Error("recipes: the session file does not list all that is held", "err", err)
	}
}

// save writes the state, unless a call of another goroutine has written it meanwhile.
func (k *Keeper) save() error {
	k.mu.Lock()
	version := k.version
	k.mu.Unlock()
	k.writing.Lock()
	defer k.writing.Unlock()
	if k.written >= version {
		return nil
	}
	k.mu.Lock()
	version, stopped := k.version, k.stopped
	s := k.state
	s.held = slices.Clone(s.held)
	k.mu.Unlock()
	if stopped {
		return nil
	}
	if err := k.file.write(s); err != nil {
		return err
	}
	k.written = version
	return nil
}

// Stop leaves the file as it is from now on.
func (k *Keeper) Stop() {
	if k == nil {
		return
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
}

// Close gives the file to others, after Stop. With remove it removes it first, unless it is not
// known whether the session in it lives.
func (k *Keeper) Close(remove bool) error {
	if k == nil {
		return nil
	}
	select {
	case <-k.known:
	default:
		remove = false
	}
	if remove {
		return k.file.remove()
	}
	return k.file.close()
}

func sessionText(id int64) string { return fmt.Sprintf("%#x", uint64(id)) }
