//go:build unix

package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

var (
	// Forwarded are the signals that are sent on to the command.
	Forwarded = []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGALRM, syscall.SIGCONT,
	}
	// fromTerminal are those that a terminal sends to all that run on it.
	fromTerminal = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT}
	// endsAll are those whose sender wants everything to end.
	endsAll = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	// askToEnd are sent to end a command. SIGCONT is among them so that a stopped command runs
	// its handler.
	askToEnd = []os.Signal{syscall.SIGTERM, syscall.SIGCONT}
)

// Command is the name under which this program runs itself as the guard of a command.
//
// The guard is the command's parent. It is in a process group of its own, where no terminal and no
// kill of a group finds it. On Linux every process that the command has started, and that has lost
// its parent, becomes a child of the guard (PR_SET_CHILD_SUBREAPER), also after setsid or a double
// fork. So the guard ends when none is left. When lockkeeper is killed, a pipe from it to the guard
// ends, and the guard kills them all. When the guard is killed, they become children of lockkeeper,
// which kills them all. When both are killed at once, the kernel kills the command, but nobody what
// that has started.
//
// Elsewhere the command inherits a pipe, and so does what it starts: when the pipe ends, all have
// ended. Those in the process group of the command can be killed.
const Command = "guard-of-a-command"

// Name is what the guard is called in lists of processes: whoever kills all that is called
// lockkeeper has the guard kill the commands.
const Name = "lock-guard"

// Descriptors of the guard.
const (
	controlFD = 3 // an order, and then leaveOrder or the end
	reportFD  = 4 // reports
	keptFD    = 5 // a file that is open as long as the guard runs, if there is one
	// aliveFD is the pipe that the command inherits where there is no reaper: a number that scripts
	// do not use for themselves. As inheritedFD it inherits the kept file.
	aliveFD     = 47
	inheritedFD = 48
)

// leaveOrder tells the guard to end without killing anybody.
const leaveOrder = "leave\n"

// order tells the guard what to run.
type order struct {
	Args  []string
	Group int  // the process group to run it in; 0: a new one
	Die   bool // kill all when the pipe ends
	// Inherit: the command inherits the keptFD
	Inherit bool
}

// report is what the guard tells: the process, its end, or why it cannot be run.
type report struct {
	PID    int                 `json:",omitempty"`
	Ended  *syscall.WaitStatus `json:",omitempty"`
	Error  string              `json:",omitempty"`
	Status int                 `json:",omitempty"`
}

// family is the guard, the command, and all that this has started.
type family struct {
	guard   *exec.Cmd
	control io.WriteCloser
	die     bool
	pid     int  // of the command; 0 if the guard was killed before its first report
	empty   bool // the command has ended, and its process group is empty
}

// errNotRun is a report about a command that cannot be run.
type errNotRun struct{ report }

func (e errNotRun) Error() string { return e.report.Error }

// Is makes the error one that CannotStart knows.
func (e errNotRun) Is(target error) bool {
	return target == exec.ErrNotFound && e.Status == ExitNotFound
}

// start starts the guard, and has it start the command.
func (c *Child) start(args, environment []string, options Options) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("where is this program? %w", err)
	}
	becomeReaper() // of the guard's children, should that be killed
	o := order{Args: args, Die: options.Die, Inherit: options.Inherit && options.Kept != nil}
	if !c.group {
		o.Group = syscall.Getpgrp()
	}
	controlRead, controlWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	reportRead, reportWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	c.die, c.control = o.Die, controlWrite
	c.guard = exec.Command(self, Command)
	c.guard.Args[0] = Name
	c.guard.Stdin, c.guard.Stdout, c.guard.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.guard.Env = environment
	c.guard.ExtraFiles = []*os.File{controlRead, reportWrite}
	if options.Kept != nil {
		c.guard.ExtraFiles = append(c.guard.ExtraFiles, options.Kept)
	}
	c.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = c.guard.Start()
	controlRead.Close()
	reportWrite.Close()
	if err != nil {
		return err
	}
	reports := json.NewDecoder(reportRead)
	var first report
	if err = json.NewEncoder(controlWrite).Encode(o); err == nil {
		err = reports.Decode(&first)
	}
	if err == nil && first.Error != "" {
		controlWrite.Close()
		_ = c.guard.Wait()
		return errNotRun{first}
	}
	// An error: the guard was killed, perhaps after it had started the command. follow finds out.
	c.pid = first.PID
	go c.follow(reports)
	return nil
}

// follow waits for the end of the command, and for that of all that it has started.
func (c *Child) follow(reports *json.Decoder) {
	var r report
	known := reports.Decode(&r) == nil && r.Ended != nil
	if known {
		c.Status = shellStatus(*r.Ended)
		close(c.Ended)
	}
	_ = c.guard.Wait()
	if !c.guard.ProcessState.Success() {
		c.adopt(known)
	}
	if !known {
		close(c.Ended)
	}
	close(c.Done)
}

// adopt takes the place of a guard that was killed.
func (c *Child) adopt(known bool) {
	if !known {
		c.Status = shellStatus(c.guard.ProcessState.Sys().(syscall.WaitStatus))
	}
	stop := make(chan struct{})
	defer close(stop)
	if c.die {
		go killAll(os.Getpid(), c.ownGroup(), stop)
	}
	reap(func(pid int, status syscall.WaitStatus) {
		if pid == c.pid && !known {
			c.Status = shellStatus(status)
		}
	})
}

// ownGroup is the process group that the command leads; 0 if it leads none.
func (c *Child) ownGroup() int {
	if c.group {
		return c.pid
	}
	return 0
}

// Leave lets what the command has started go on.
func (c *Child) Leave() {
	_, _ = io.WriteString(c.control, leaveOrder)
}

// signal sends a signal to the command, and to its process group if that is its own.
func (c *Child) signal(s os.Signal) {
	pid, over := c.pid, false
	select {
	case <-c.Ended:
		over = true
	default:
	}
	if pid == 0 || over && (!c.group || c.empty) {
		return // its number is not known, or may be another's
	}
	if c.group {
		pid = -pid
	}
	err := syscall.Kill(pid, s.(syscall.Signal)) // it may just have ended
	c.empty = over && errors.Is(err, syscall.ESRCH)
}

// signalAll sends a signal once to each process of the family but the guard.
func (c *Child) signalAll(s os.Signal) {
	c.signal(s)
	_ = c.guard.Process.Signal(syscall.SIGCONT) // somebody may have stopped it
	for _, p := range Descendants(os.Getpid()) {
		if p.PID != c.guard.Process.Pid && (!c.group && p.PID != c.pid || c.group && p.Group != c.pid) {
			_ = syscall.Kill(p.PID, s.(syscall.Signal))
		}
	}
}

// Names are the processes that run yet, for people; none where that is not known.
func (c *Child) Names() (names []string) {
	for _, p := range Descendants(os.Getpid()) {
		if p.PID != c.guard.Process.Pid {
			names = append(names, fmt.Sprintf("%s (%d)", p.Name, p.PID))
		}
	}
	return names
}

// Process is a process of the family.
type Process struct {
	PID, Group int
	Name       string
}

// shellStatus is an exit status as shells have it.
func shellStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return ExitSignal + int(s.Signal())
	}
	return s.ExitStatus()
}

// reap waits for all children, those that it inherits too, until there is none.
func reap(ended func(pid int, status syscall.WaitStatus)) {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == nil:
			ended(pid, status)
		case err != syscall.EINTR:
			return // ECHILD
		}
	}
}

// killAll kills the descendants of a process, but for the caller, and a process group, again and
// again until stop is closed: those that live yet may start others.
func killAll(root, group int, stop <-chan struct{}) {
	for {
		if group > 0 && errors.Is(syscall.Kill(-group, syscall.SIGKILL), syscall.ESRCH) {
			group = 0 // its number may be another's
		}
		for _, p := range Descendants(root) {
			if p.PID != os.Getpid() {
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(killPause):
		}
	}
}

// Run is the guard's process. See Command.
func Run() int {
	// the kernel takes the end of the thread that starts the command for our end
	runtime.LockOSThread()
	syscall.CloseOnExec(controlFD)
	syscall.CloseOnExec(reportFD)
	syscall.CloseOnExec(keptFD)
	nameProcess(Name)
	for _, s := range Forwarded { // they are for the command; it would inherit that we ignore them
		if !signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	control, reports := bufio.NewReader(os.NewFile(controlFD, "control")), os.NewFile(reportFD, "reports")
	// to nobody, if it was killed
	tell := func(r report) { _ = json.NewEncoder(reports).Encode(r) }
	line, err := control.ReadBytes('\n')
	var o order
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil || len(o.Args) == 0 {
		return exitTrouble
	}
	reaper := becomeReaper()
	cmd, alive, err := o.run(reaper)
	if err != nil {
		tell(report{Error: err.Error(), Status: CannotStart(err)})
		return 0
	}
	tell(report{PID: cmd.Process.Pid})
	go o.obey(control, cmd.Process.Pid)
	reap(func(pid int, status syscall.WaitStatus) {
		if pid == cmd.Process.Pid {
			tell(report{Ended: &status})
		}
	})
	if !reaper {
		_, _ = io.Copy(io.Discard, alive)
	}
	return 0
}

// run starts the command. alive ends when all have ended, where there is no reaper.
func (o order) run(reaper bool) (cmd *exec.Cmd, alive *os.File, err error) {
	cmd = exec.Command(o.Args[0], o.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: o.Group}
	if o.Die {
		dieWithParent(cmd.SysProcAttr)
	}
	inherit := func(f *os.File, fd int) {
		cmd.ExtraFiles = append(cmd.ExtraFiles, make([]*os.File, fd-2-len(cmd.ExtraFiles))...)
		cmd.ExtraFiles[fd-3] = f
	}
	if !reaper {
		var inherited *os.File
		if alive, inherited, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
		defer inherited.Close()
		inherit(inherited, aliveFD)
	}
	if o.Inherit {
		inherit(os.NewFile(keptFD, "kept"), inheritedFD)
	}
	err = cmd.Start()
	if errors.Is(err, syscall.EPERM) && o.Group != 0 { // the group has gone meanwhile
		return nil, nil, fmt.Errorf("process group %d: %w", o.Group, err)
	}
	return cmd, alive, err
}

// obey ends the guard when it is told to, and kills all when nobody is left who would tell it.
func (o order) obey(control *bufio.Reader, pid int) {
	line, _ := control.ReadString('\n')
	if line == leaveOrder || !o.Die {
		os.Exit(0)
	}
	group := 0
	if o.Group == 0 {
		group = pid
	} else {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	killAll(os.Getpid(), group, nil) // for ever: the guard ends with the last of them
}

// Interrupts reports whether a signal ends a command that waits, and with which exit status.
func Interrupts(s os.Signal) (status int, ok bool) {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM:
		return ExitSignal + int(s.(syscall.Signal)), true
	}
	return 0, false
}
