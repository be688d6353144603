package jepsen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A Process is one operating system process that this package started: a member of the cluster or a
// client worker. Everything it prints goes to one log file.
//
// A Process cannot outlive its starter: where the system can do it (Linux) the kernel kills it when
// the starter dies, however that happens, and also while it is stopped by SIGSTOP.
type Process struct {
	name    string
	logPath string
	pid     int
	done    chan struct{}
	err     error       // how it ended; readable once done is closed
	ended   atomic.Bool // Kill or Stop was called while it ran
}

// StartProcess starts cmd. Its output is appended to the file logPath, unless cmd has a Stdout or
// Stderr of its own.
func StartProcess(name string, cmd *exec.Cmd, logPath string) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("jepsen: start %s: %w", name, err)
	}
	defer log.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	cmd.SysProcAttr = procAttr()

	p := &Process{name: name, logPath: logPath, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ties the child's life to the *thread* that forked it (prctl(2),
		// PR_SET_PDEATHSIG). So the thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("jepsen: start %s: %w", name, err)
	}
	return p, nil
}

// Pid is the number of the process.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the process has ended and been reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err is the result of exec.Cmd.Wait: nil if the process ended well. It may only be called when
// Done is closed.
func (p *Process) Err() error { return p.err }

// ExitError describes how the process ended, with the end of its log. It may only be called when
// Done is closed.
func (p *Process) ExitError() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("jepsen: %s ended (%s); the end of its log:\n%s", p.name, how, p.LogTail(2048))
}

// LogTail is the last maxBytes of the process's output.
func (p *Process) LogTail(maxBytes int64) string {
	f, err := os.Open(p.logPath)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil && size > maxBytes {
		_, _ = f.Seek(-maxBytes, io.SeekEnd)
	} else {
		_, _ = f.Seek(0, io.SeekStart)
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(tail))
}

// crashMarks are the beginnings of lines that a Go program prints when something is wrong with the
// program itself.
var crashMarks = []string{"WARNING: DATA RACE", "panic: ", "fatal error: "}

// complaints are the places in the log where the process (or one that wrote the same log before it)
// found itself broken, each with the lines that follow. A process that is killed in the end has no
// exit status that tells.
func (p *Process) complaints() ([]string, error) {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return nil, fmt.Errorf("jepsen: %w", err)
	}
	const context = 30
	var found []string
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		if slices.ContainsFunc(crashMarks, func(d string) bool { return strings.HasPrefix(lines[i], d) }) {
			end := min(i+context, len(lines))
			found = append(found, fmt.Sprintf("%s: %s", p.name, strings.Join(lines[i:end], "\n")))
			i = end
		}
	}
	return found, nil
}

// signal sends sig. A process that has ended is not an error.
func (p *Process) signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	// The pid cannot have been given to another process: it is reaped by the goroutine that closes
	// done, and a zombie keeps its pid until then. (In the instant between the two the worst is
	// ESRCH.)
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("jepsen: signal %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and waits until it has gone.
func (p *Process) Kill() error {
	p.ended.CompareAndSwap(false, p.Running())
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop ends the process with SIGTERM and waits until it has, or until ctx ends, when it is killed
// and the context's error returned.
func (p *Process) Stop(ctx context.Context) error {
	p.ended.CompareAndSwap(false, p.Running())
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("jepsen: stop %s: %w", p.name, ctx.Err()), p.Kill())
	}
}

// Pause stops the process with SIGSTOP and returns when none of its threads can run any more.
func (p *Process) Pause(ctx context.Context) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return Poll(ctx, 2*time.Millisecond, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if errors.Is(err, os.ErrNotExist) && p.Running() && runtime.GOOS != "linux" {
			return nil // no /proc to ask; the signal was delivered
		}
		if err != nil {
			return err
		}
		// pid (name) state ...; the name may hold blanks and brackets.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
		if !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("jepsen: pause %s: state is %.1s", p.name, rest)
		}
		return nil
	})
}

// Resume lets a paused process go on.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Run runs a program to its end, its output appended to the file logPath, and kills it when ctx
// ends. Like members and workers it does not outlive the caller. It returns an error, with the end
// of the output, if the program does not succeed.
func Run(ctx context.Context, name string, cmd *exec.Cmd, logPath string) error {
	p, err := StartProcess(name, cmd, logPath)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		if err := p.Kill(); err != nil {
			return err
		}
		return fmt.Errorf("jepsen: %s was killed: %w; the end of its log:\n%s", name, ctx.Err(), p.LogTail(2048))
	}
	if p.err != nil {
		return p.ExitError()
	}
	return nil
}

// Sleep waits for d, and reports whether ctx has not ended meanwhile.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Poll calls try every interval until it succeeds or ctx ends; then it returns the last error of
// try.
func Poll(ctx context.Context, interval time.Duration, try func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}
