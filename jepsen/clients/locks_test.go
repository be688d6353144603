package clients

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

// A resource is the number behind HTTP of docs/locks.md. It does as it is told.
type resource struct {
	mu     sync.Mutex
	number int64
	writes int // that it has done
}

// ServeHTTP implements http.Handler.
func (r *resource) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Method == http.MethodPut {
		n, err := strconv.ParseInt(string(body), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.number = n
		r.writes++
	}
	fmt.Fprint(w, r.number)
}

// lost is the number of writes that another one has undone: each adds one.
func (r *resource) lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes - int(r.number)
}

// A network is between the programs and the fence, or the resource if there is none. It holds back
// the first write until release is closed.
type network struct {
	forward http.Handler
	once    sync.Once
	late    chan struct{} // closed when the first write has come
	release chan struct{}
	mu      sync.Mutex
	status  int // of the answer to it
}

// ServeHTTP implements http.Handler.
func (n *network) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	first := false
	if q.Method == http.MethodPut {
		n.once.Do(func() { first = true })
	}
	if !first {
		n.forward.ServeHTTP(w, q)
		return
	}
	body, _ := io.ReadAll(q.Body) // all of it has been sent
	q.Body = io.NopCloser(strings.NewReader(string(body)))
	close(n.late)
	<-n.release
	answer := httptest.NewRecorder()
	n.forward.ServeHTTP(answer, q.WithContext(context.WithoutCancel(q.Context())))
	n.mu.Lock()
	n.status = answer.Code
	n.mu.Unlock()
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// lockPrograms are the programs on the page, by language: each returns its command, with the texts
// of the page replaced.
type lockPrograms map[string]func(t *testing.T, elsewhere *strings.Replacer) *exec.Cmd

func newLockPrograms(t *testing.T, page, lockkeeper string) lockPrograms {
	block := func(language string) string {
		_, text, ok := strings.Cut(page, "\n```"+language+" fenced\n")
		text, _, _ = strings.Cut(text, "\n```")
		if !ok {
			t.Fatalf("the page has no program in %s", language)
		}
		return text + "\n"
	}
	write := func(t *testing.T, name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	javaClient, pythonClient := java(t, filepath.Join(sources, "java")), python(t, filepath.Join(sources, "python"))
	return lockPrograms{
		"go": func(t *testing.T, elsewhere *strings.Replacer) *exec.Cmd {
			file := write(t, "main.go", elsewhere.Replace(block("go")))
			binary := filepath.Join(filepath.Dir(file), "report")
			if out, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
			return exec.Command(binary)
		},
		"java": func(t *testing.T, elsewhere *strings.Replacer) *exec.Cmd {
			return javaClient.program(write(t, "Report.java", elsewhere.Replace(block("java"))))
		},
		"python": func(t *testing.T, elsewhere *strings.Replacer) *exec.Cmd {
			return pythonClient.program(write(t, "report.py", elsewhere.Replace(block("python"))))
		},
		"curl": func(t *testing.T, elsewhere *strings.Replacer) *exec.Cmd {
			return exec.Command("bash", write(t, "report.sh", elsewhere.Replace(block("bash curl"))))
		},
		"bash": func(t *testing.T, elsewhere *strings.Replacer) *exec.Cmd {
			cmd := exec.Command("bash", write(t, "report.sh", elsewhere.Replace(block("bash"))))
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(lockkeeper)+":"+os.Getenv("PATH"))
			return cmd
		},
	}
}

// TestLocksPage runs the programs at the top of docs/locks.md: all contend for the lock, and one of
// them is stopped (SIGSTOP) past its session's timeout while its first write is under way. The
// fence refuses that write, and no update is lost; without the fence one is.
func TestLocksPage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		jepsen.Need(t, fmt.Errorf("curl: %w (apt-get install curl)", jepsen.ErrMissing))
	}
	target, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	text, err := os.ReadFile("../../docs/locks.md")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// No session has more than 20 ticks, so a pause need not be long.
	c, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: 3, Dir: jepsen.KeptDir(t, *keepFlag),
		TickTime: 100 * time.Millisecond, Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	lockkeeper := target.Tool().Path
	programs := newLockPrograms(t, string(text), lockkeeper)
	for victim := range programs {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			status, lost := playLate(t, c, string(text), lockkeeper, programs, victim, true)
			if status != http.StatusConflict || lost != 0 {
				t.Errorf("the late write: status %d, want 409; %d updates are lost", status, lost)
			}
		})
	}
	t.Run("without a fence", func(t *testing.T) {
		t.Parallel()
		if status, lost := playLate(t, c, string(text), lockkeeper, programs, "python", false); status != 200 || lost == 0 {
			t.Errorf("the late write: status %d; %d updates are lost, want some", status, lost)
		}
	})
}

// playLate starts one program and stops it when its first write is under way. Then the others run
// to their end, and the write arrives. It returns the status of its answer, and the number of lost
// updates.
//
// The stream of curl ends with the connection, which stands while a process is stopped. So the
// program with curl is cut off, too, as on a machine that is suspended.
func playLate(t *testing.T, c *jepsen.Cluster, page, lockkeeper string, programs lockPrograms, victim string, fenced bool) (status, lost int) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := new(resource)
	behind := httptest.NewServer(r)
	t.Cleanup(behind.Close)
	path := "/locks/" + strings.ReplaceAll(filepath.Base(t.Name()), "_", "-")
	addr := strings.TrimPrefix(behind.URL, "http://")
	if fenced {
		addr = startFence(t, ctx, page, lockkeeper, path, addr)
	}
	n := &network{forward: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr}),
		late: make(chan struct{}), release: make(chan struct{})}
	front := httptest.NewServer(n)
	t.Cleanup(front.Close)
	way := newWay(t, c.Members()[0].HTTPAddr)
	elsewhere := newElsewhere(c.Servers(), path, strings.TrimPrefix(front.URL, "http://"), way.Addr().String())
	start := func(name string) *jepsen.Process {
		p, err := jepsen.StartProcess(name, programs[name](t, elsewhere), filepath.Join(t.TempDir(), name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = family(p.Pid(), syscall.SIGKILL) })
		return p
	}
	stopped := start(victim)
	wait(t, ctx, n.late, stopped)
	if err := family(stopped.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if victim == "curl" {
		way.cut()
	}
	var others []*jepsen.Process
	for name := range programs {
		if name != victim {
			others = append(others, start(name))
		}
	}
	for _, p := range others {
		wait(t, ctx, p.Done(), p)
		if p.Err() != nil {
			t.Error(p.ExitError())
		}
	}
	close(n.release)
	err := jepsen.Poll(ctx, 10*time.Millisecond, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if status = n.status; status == 0 {
			return fmt.Errorf("the late write has no answer")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := family(stopped.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait(t, ctx, stopped.Done(), stopped)
	if stopped.Err() == nil {
		t.Errorf("%s ends well, though it has lost the lock: %s", victim, stopped.LogTail(2000))
	}
	t.Logf("%s, when it goes on: %s", victim, stopped.LogTail(400))
	return status, r.lost()
}

// newElsewhere replaces the addresses on the page, and the path of the lock.
func newElsewhere(servers, path, front, member string) *strings.Replacer {
	all := strings.Split(servers, ",")
	return strings.NewReplacer("127.0.0.1:2181", all[0], "127.0.0.1:2182", all[1], "127.0.0.1:2183", all[2],
		"/locks/report", path, "127.0.0.1:8001", front, "127.0.0.1:8080", member)
}

// A way is the connections of programs to the HTTP port of a member.
type way struct {
	net.Listener
	mu  sync.Mutex
	far []net.Conn // the member's ends
}

func newWay(t *testing.T, member string) *way {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Listener: l}
	var done sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		w.cut()
		done.Wait()
	})
	done.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", member)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.mu.Lock()
			w.far = append(w.far, far)
			w.mu.Unlock()
			for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
				done.Go(func() {
					_, _ = io.Copy(ends[0], ends[1])
					_ = near.Close()
					_ = far.Close()
				})
			}
		}
	})
	return w
}

// cut ends the connections that there are.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, far := range w.far {
		_ = far.Close()
	}
	w.far = nil
}

// startFence runs the page's command for the fence before a resource, and returns its address.
func startFence(t *testing.T, ctx context.Context, page, lockkeeper, path, resource string) (addr string) {
	_, command, ok := strings.Cut(page, "\n```sh fenced\n")
	command, _, _ = strings.Cut(command, "\n```")
	ports, err := freeport.Take(1)
	if err != nil || !ok {
		t.Fatalf("fence: %v, command %q", err, command)
	}
	addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	words := strings.Fields(strings.NewReplacer("127.0.0.1:8001", addr, "127.0.0.1:8000", resource, "/locks/report", path).Replace(command))
	cmd := exec.Command(lockkeeper, words[1:]...)
	cmd.Dir = t.TempDir()
	p, err := jepsen.StartProcess("fence", cmd, filepath.Join(cmd.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	err = jepsen.Poll(ctx, 10*time.Millisecond, func() error {
		answer, err := http.Get("http://" + addr + "/") // it has no token
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("the fence does not serve: %v\n%s", err, p.LogTail(2000))
	}
	return addr
}

// wait waits for a program to come to a point.
func wait(t *testing.T, ctx context.Context, point <-chan struct{}, p *jepsen.Process) {
	t.Helper()
	select {
	case <-point:
	case <-ctx.Done():
		t.Fatalf("it takes too long; the log:\n%s", p.LogTail(2000))
	}
}

// family sends a signal to a process and its descendants.
func family(pid int, sig syscall.Signal) error {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		if err != nil {
			return err
		}
		for _, file := range children {
			text, _ := os.ReadFile(file)
			for _, word := range strings.Fields(string(text)) {
				if child, err := strconv.Atoi(word); err == nil && !slices.Contains(all, child) {
					all = append(all, child)
				}
			}
		}
	}
	for _, pid := range all {
		if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
			return err
		}
	}
	return nil
}
