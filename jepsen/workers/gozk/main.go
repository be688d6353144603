package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if len(os.Args) != 5 {
		log.Fatal("usage: gozk HARNESS NAME SERVERS SESSION_TIMEOUT_MS")
	}
	timeoutMs, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	harness, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	w := &worker{name: os.Args[2], harness: harness, handles: make(map[string]handle),
		threads: make(map[string]chan command)}
	servers := strings.Split(os.Args[3], ",")
	ready := make(chan struct{}) // w.session is set
	w.session, err = connect(servers, time.Duration(timeoutMs)*time.Millisecond, func(line string) {
		<-ready
		w.send("event " + line)
	})
	if err != nil {
		log.Fatal(err)
	}
	close(ready)
	w.serve()
}

// A handle is one open recipe.
type handle interface {
	// acquire returns the fencing token, or a refusal.
	acquire(ctx context.Context) (token int64, err error)
	release(ctx context.Context) error
	// check says whether the lock can still be relied on, and its token.
	check() (held bool, token int64)
}

// none is the recipe of somebody who does not lock. It shows that the detector sees it.
type none struct{}

func (none) acquire(context.Context) (int64, error) { return 0, nil }
func (none) release(context.Context) error          { return nil }
func (none) check() (bool, int64)                   { return true, 0 }

// worker carries out the harness's commands.
type worker struct {
	name    string
	session *session

	sendMu  sync.Mutex
	harness net.Conn

	mu      sync.Mutex
	handles map[string]handle
	threads map[string]chan command // used by serve only
}

// A command is one line from the harness.
type command struct {
	id, verb string
	args     []string
}

func (w *worker) send(line string) {
	w.sendMu.Lock()
	defer w.sendMu.Unlock()
	if _, err := fmt.Fprintln(w.harness, strings.ReplaceAll(line, "\n", " ")); err != nil {
		// The test has gone, so there is nobody left to work for.
		log.Fatal(err)
	}
}

// serve reads commands until the harness says close or has gone. Each of the
// harness's threads is a goroutine that ends with the process.
func (w *worker) serve() {
	lines := bufio.NewScanner(w.harness)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		c := command{id: words[0], verb: words[2], args: words[3:]}
		if c.verb == "close" {
			w.send(c.id + " " + w.close())
			return
		}
		thread := words[1]
		if w.threads[thread] == nil {
			todo := make(chan command, 16)
			w.threads[thread] = todo
			go func() {
				for c := range todo {
					w.send(c.id + " " + w.run(c))
				}
			}()
		}
		w.threads[thread] <- c
	}
}

// close ends the session. The library's Close does not tell whether the
// server heard of it, so it is given a connection first.
func (w *worker) close() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.session.awaitReady(ctx); err != nil {
		return "fail not connected: " + err.Error()
	}
	w.session.recipes.Close() // and the connection under it
	return "ok"
}

// run carries out one command and returns the reply's words.
func (w *worker) run(c command) string {
	if c.verb == "open" {
		return w.open(c.args[0], c.args[1], c.args[2])
	}
	w.mu.Lock()
	h := w.handles[c.args[0]]
	w.mu.Unlock()
	switch c.verb {
	case "acquire":
		timeoutMs, err := strconv.Atoi(c.args[1])
		if err != nil {
			return "fail " + err.Error()
		}
		ctx, cancel := context.WithCancel(context.Background())
		if timeoutMs >= 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(timeoutMs)*time.Millisecond)
		}
		defer cancel()
		token, err := h.acquire(ctx)
		if ctx.Err() != nil && err != nil {
			return "fail timeout"
		} else if err != nil {
			return "fail " + err.Error()
		}
		return fmt.Sprintf("ok %d", token)
	case "release":
		if err := h.release(context.Background()); err != nil {
			return "fail " + err.Error()
		}
		return "ok"
	case "check":
		held, token := h.check()
		if held {
			return fmt.Sprintf("ok held %d", token)
		}
		return fmt.Sprintf("ok lost %d", token)
	default:
		return "fail unknown command " + c.verb
	}
}

func (w *worker) open(name, recipe, path string) string {
	var h handle
	switch recipe {
	case "zklock":
		h = newZKLock(w.session, path)
	case "mutex":
		h = newMutex(w.session.recipes, path, func(why error) {
			w.send("event lost " + name + " " + why.Error())
		})
	case "none":
		h = none{}
	default:
		return "fail unknown recipe " + recipe
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handles[name] = h
	return "ok"
}
