package jepsen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A WorkerConfig describes a client process.
type WorkerConfig struct {
	// Name is unique among the workers that share a History, without blanks.
	Name string
	// Client is the library it runs.
	Client Client
	// Servers is the connection string.
	Servers string
	// SessionTimeout is the timeout that the client requests.
	SessionTimeout time.Duration
	// Dir is where its log goes (Name.log). It must exist.
	Dir string
	// History gets the library's reports about its connection, and the recipes' about lost locks.
	History *History
}

// A Worker is a client in a process of its own, in its own language, with an unmodified client
// library and one session. It takes commands over one TCP connection. Its methods may be called
// from several goroutines. Its protocol:
//
// The test listens, the worker calls. Lines of words, separated by blanks. The test sends commands;
// the worker carries out the commands of one thread one after another, the commands of different
// threads side by side, and answers each once:
//
//	> <id> <thread> open <handle> <recipe> <path> [name=value...]
//	> <id> <thread> acquire <handle> <timeout in ms, -1: none>
//	> <id> <thread> release <handle>
//	> <id> <thread> cancel <handle>          give up a waiting acquire
//	> <id> <thread> contenders <handle>      who is in the queue
//	> <id> <thread> check <handle>           can the lock still be relied on?
//	> <id> main close                        end the session and the process
//	< <id> ok [result]
//	< <id> fail <what the library threw>     it certainly did not happen
//	< <id> info <what the library threw>     it may have happened
//
// The result of acquire is the fencing token (0 if the recipe has none); a lock that is not
// acquired in time answers "fail timeout". Unasked, a worker passes on its library's reports:
//
//	< event connected <member's address> <session>
//	< event suspended                        no connection; the session may live
//	< event expired                          the session is over
//	< event lost <handle>                    the recipe gave up the lock
//
// A worker ends when its connection to the test does.
type Worker struct {
	name    string
	history *History
	timeout time.Duration // of the session, as asked for
	process *Process
	conn    net.Conn
	readers sync.WaitGroup // the goroutine that reads conn

	writeMu sync.Mutex // one line at a time

	mu      sync.Mutex
	lastID  int
	pending map[int]request
	session string // the newest one
	readErr error  // why the reader ended; nil while it runs
}

// A request is a command that waits for its reply.
type request struct {
	reply chan Reply
	// see is called with the reply by the goroutine that reads the connection, so that its records
	// are in the history in the order in which the worker said them. It may be nil.
	see func(Reply)
}

// A Reply is a worker's answer to one command.
type Reply struct {
	// Kind is OK, Fail or Info.
	Kind Kind
	// Text is the result, or the name of the library's exception and its message.
	Text string
}

// Is says whether the reply is of this kind and its text starts with word.
func (r Reply) Is(kind Kind, word string) bool {
	first, _, _ := strings.Cut(r.Text, " ")
	return r.Kind == kind && first == word
}

// String is the reply as it was sent.
func (r Reply) String() string { return strings.TrimSpace(string(r.Kind) + " " + r.Text) }

// StartWorker starts a worker and waits until its client library says that it is connected.
func StartWorker(ctx context.Context, cfg WorkerConfig) (*Worker, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("jepsen: worker %s: %w", cfg.Name, err)
	}
	defer l.Close()
	cmd := exec.Command(cfg.Client.Command[0], append(slices.Clone(cfg.Client.Command[1:]),
		l.Addr().String(), cfg.Name, cfg.Servers, strconv.FormatInt(cfg.SessionTimeout.Milliseconds(), 10))...)
	process, err := StartProcess(cfg.Name, cmd, filepath.Join(cfg.Dir, cfg.Name+".log"))
	if err != nil {
		return nil, err
	}
	conn, err := acceptFrom(ctx, l, process)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("jepsen: worker %s: %w", cfg.Name, err), process.Kill())
	}
	w := &Worker{
		name:    cfg.Name,
		history: cfg.History,
		timeout: cfg.SessionTimeout,
		process: process,
		conn:    conn,
		pending: make(map[int]request),
	}
	from := cfg.History.Len()
	w.readers.Go(w.read)
	connected := func(op Op) bool { return op.Worker == w.name && op.F == FConnected }
	if err := cfg.History.Follow(ctx, from, connected); err != nil {
		return nil, errors.Join(fmt.Errorf("jepsen: worker %s does not connect: %w; the end of its log:\n%s",
			cfg.Name, err, process.LogTail(4<<10)), w.Kill())
	}
	return w, nil
}

// acceptFrom waits for the worker to call, or to die.
func acceptFrom(ctx context.Context, l net.Listener, p *Process) (net.Conn, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() {
		select {
		case <-p.Done():
			giveUp(p.ExitError())
		case <-ctx.Done():
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	conn, err := l.Accept()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}

// Session is the newest session that the worker's library has had, or empty.
func (w *Worker) Session() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session
}

// Do has the worker run one command and waits for its reply. Commands of one thread run one after
// another on one thread of the worker; threads run side by side. Neither a word nor a thread's name
// may be empty or hold a blank. The error is only about the worker itself: its process ended, or
// ctx did (the command then may still run).
func (w *Worker) Do(ctx context.Context, thread string, words ...string) (Reply, error) {
	return w.DoSeen(ctx, nil, thread, words...)
}

// DoSeen is Do, and calls see with the reply before anything that the worker says after it is
// recorded. It is called from the goroutine that reads the worker's lines, so it must not wait.
func (w *Worker) DoSeen(ctx context.Context, see func(Reply), thread string, words ...string) (Reply, error) {
	reply := make(chan Reply, 1)
	w.mu.Lock()
	if w.readErr != nil {
		defer w.mu.Unlock()
		return Reply{}, w.readErr
	}
	w.lastID++
	id := w.lastID
	w.pending[id] = request{reply, see}
	w.mu.Unlock()

	line := fmt.Sprintf("%d %s %s\n", id, thread, strings.Join(words, " "))
	w.writeMu.Lock()
	_, err := w.conn.Write([]byte(line))
	w.writeMu.Unlock()
	if err != nil {
		return Reply{}, fmt.Errorf("jepsen: worker %s: %w", w.name, err)
	}
	select {
	case r, ok := <-reply:
		if !ok {
			w.mu.Lock()
			defer w.mu.Unlock()
			return Reply{}, w.readErr
		}
		return r, nil
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("jepsen: worker %s: %s: %w", w.name, strings.Join(words, " "), ctx.Err())
	}
}

// read takes in the worker's lines until its connection ends. It is a goroutine of the Worker; it
// ends when the process has, or when Close or Kill closed the connection.
func (w *Worker) read() {
	lines := bufio.NewScanner(w.conn)
	lines.Buffer(nil, 1<<20)
	var err error
	for err == nil && lines.Scan() {
		err = w.take(lines.Text())
	}
	if err == nil {
		err = lines.Err()
	}
	if err == nil {
		err = errors.New("it closed its connection")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readErr = fmt.Errorf("jepsen: worker %s: %w", w.name, err)
	for _, waiting := range w.pending {
		close(waiting.reply)
	}
	w.pending = nil
}

// take handles one line: a reply or an event.
func (w *Worker) take(line string) error {
	first, rest, _ := strings.Cut(line, " ")
	if first == "event" {
		return w.takeEvent(rest)
	}
	id, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("unknown line %q", line)
	}
	kind, text, _ := strings.Cut(rest, " ")
	if k := Kind(kind); k != OK && k != Fail && k != Info {
		return fmt.Errorf("unknown reply %q", line)
	}
	w.mu.Lock()
	waiting, ok := w.pending[id]
	delete(w.pending, id)
	w.mu.Unlock()
	if !ok {
		return fmt.Errorf("reply to nothing: %q", line)
	}
	r := Reply{Kind: Kind(kind), Text: text}
	if waiting.see != nil {
		waiting.see(r)
	}
	waiting.reply <- r
	return nil
}

// takeEvent handles the worker's unasked reports.
func (w *Worker) takeEvent(event string) error {
	words := strings.Fields(event)
	switch {
	case len(words) == 3 && words[0] == FConnected:
		w.setSession(words[2])
		w.history.Add(Op{
			Worker: w.name, Kind: Info, F: FConnected, Member: words[1], Session: words[2],
			Value: strconv.FormatInt(w.timeout.Milliseconds(), 10),
		})
	case len(words) >= 1 && (words[0] == FSuspended || words[0] == FExpired):
		w.history.Add(Op{Worker: w.name, Kind: Info, F: words[0], Note: strings.Join(words[1:], " ")})
	case len(words) >= 2 && words[0] == FLost:
		w.history.Add(Op{
			Worker: w.name, Contender: w.name + "/" + words[1],
			Kind: Info, F: FLost, Note: strings.Join(words[2:], " "),
		})
	default:
		return fmt.Errorf("unknown event %q", event)
	}
	return nil
}

func (w *Worker) setSession(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = session
}

// Close has the worker close its session and end, and waits for both. If ctx ends first, or the
// worker could not close its session, that is an error, and the process is killed.
func (w *Worker) Close(ctx context.Context) error {
	reply, err := w.Do(ctx, "main", "close")
	if err == nil && reply.Kind != OK {
		err = fmt.Errorf("jepsen: worker %s: close: %s", w.name, reply)
	}
	if err == nil {
		select {
		case <-w.process.Done():
		case <-ctx.Done():
			err = fmt.Errorf("jepsen: worker %s does not end: %w", w.name, ctx.Err())
		}
	}
	return errors.Join(err, w.Kill())
}

// Kill ends the worker with SIGKILL. Its session stays until it expires.
func (w *Worker) Kill() error {
	err := w.process.Kill()
	_ = w.conn.Close()
	w.readers.Wait()
	return err
}

// Complaints are the data races and panics that a worker's log holds, if it is written in Go.
func (w *Worker) Complaints() ([]string, error) { return w.process.complaints() }
