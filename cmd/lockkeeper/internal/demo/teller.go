package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"lockkeeper/recipes"
)

// teller writes lines with the time since its beginning. Its methods may be called from any
// goroutine.
type teller struct {
	begin time.Time

	mu   sync.Mutex
	w    io.Writer
	told map[string]string // the newest line of each lock
}

func newTeller(w io.Writer) *teller {
	return &teller{begin: time.Now(), w: w, told: map[string]string{}}
}

// tell writes a line.
func (t *teller) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.w, "%5.1f s  %s\n", time.Since(t.begin).Seconds(), fmt.Sprintf(format, args...))
}

// text writes lines as they are.
func (t *teller) text(lines string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprint(t.w, lines)
}

// lock writes which contenders hold a lock and which ones wait for it, unless it has just written
// that.
func (t *teller) lock(path string, list []recipes.Contender, verb string) {
	var holders, waiters []string
	token := int64(0)
	for _, c := range list {
		if c.Held {
			holders, token = append(holders, nameOf(&c)), max(token, c.Token)
		} else {
			waiters = append(waiters, nameOf(&c))
		}
	}
	if len(holders) == 0 {
		return // it has been released meanwhile
	}
	text := fmt.Sprintf("%-13s  %s %s, token %d", path, strings.Join(holders, ", "), plural(verb, len(holders)), token)
	if len(waiters) > 0 {
		text += "; waiting: " + strings.Join(waiters, ", ")
	}
	t.mu.Lock()
	told := t.told[path] == text
	t.told[path] = text
	t.mu.Unlock()
	if !told {
		t.tell("%s", text)
	}
}

// plural turns a verb of one into the verb of n.
func plural(verb string, n int) string {
	if n == 1 {
		return verb
	}
	return strings.Replace(verb, "s", "", 1) // reads, writes
}

// nameOf is the name of a contender: its note, or the data of a candidate.
func nameOf(c *recipes.Contender) string {
	if c.Info != nil && c.Info.Note != "" {
		return c.Info.Note
	}
	return c.Identifier()
}
