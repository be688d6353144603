package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/cmd/lockkeeper/internal/demo"
	"lockkeeper/cmd/lockkeeper/internal/timerslack"
	"lockkeeper/internal/clock"
	"lockkeeper/server"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
)

// shutdownTimeout is how long clients may take to close their side when the member stops.
const shutdownTimeout = 5 * time.Second

// replacePause is the shortest time between two starts that are to set files aside. Damage that
// comes back earlier was not in the files, and ends the process.
const replacePause = time.Minute

type serveCommand struct {
	clientAddr, dataDir, logLevel, logFormat string
	console                                  string
	ignoreZooKeeper, allowUnknown, imports   bool
	without                                  numbers
	myID                                     memberNumber
	drain                                    time.Duration
}

// memberNumber is a flag with the number of this member: 2, or hostname for the number at the end
// of the host's name and one, as lockkeeper-1 is member 2.
type memberNumber struct{ id *uint8 }

func (n *memberNumber) String() string {
	if n == nil || n.id == nil {
		return ""
	}
	return strconv.Itoa(int(*n.id))
}

func (n *memberNumber) Set(text string) error {
	host := ""
	if text == "hostname" {
		var err error
		if host, err = os.Hostname(); err != nil {
			return err
		}
	}
	return n.set(text, host)
}

// set is Set on a host of that name.
func (n *memberNumber) set(text, host string) error {
	plus := uint64(0)
	if text == "hostname" {
		name, _, _ := strings.Cut(host, ".")
		text, plus = name[strings.LastIndexByte(name, '-')+1:], 1
		if text == name {
			return fmt.Errorf("the name of this host, %q, does not end in a number behind a dash", host)
		}
	}
	number, err := strconv.ParseUint(text, 10, 8)
	if err != nil || number+plus > math.MaxUint8 {
		return fmt.Errorf("%q is no member number, 0 to %d", text, math.MaxUint8)
	}
	id := uint8(number + plus)
	n.id = &id
	return nil
}

// numbers is a flag with member numbers: 2 or 2,3.
type numbers []int

func (n *numbers) String() string { return strings.Trim(fmt.Sprint(*n), "[]") }

func (n *numbers) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(one), 10, 8)
		if err != nil {
			return fmt.Errorf("%q is no member number", one)
		}
		*n = append(*n, int(id))
	}
	return nil
}

func (c *serveCommand) flags(fs *flag.FlagSet, _ env) {
	fs.StringVar(&c.clientAddr, "client-address", "",
		"`host:port` where clients connect; only without a file (default :2181)")
	fs.StringVar(&c.dataDir, "data-dir", "",
		"`directory` where the data is; only without a file (default lockkeeper-data)")
	fs.StringVar(&c.console, "console", "", "`host:port` where a browser finds the console, or off; only without a "+
		"file (default 127.0.0.1:8080, or a free port if that is in use)")
	fs.StringVar(&c.logLevel, "log-level", "", "`level` debug, info, warn or error (default info with a file, "+
		"else warn)")
	fs.StringVar(&c.logFormat, "log-format", "text", "`format` of the log: text, or json with one object in a line")
	fs.BoolVar(&c.allowUnknown, "allow-unknown-keys", false, "start although a key of the file looks like a "+
		"misspelt one")
	fs.BoolVar(&c.imports, "import", false,
		"if the member has no data yet, take over ZooKeeper's data in its directories, with the sessions")
	fs.DurationVar(&c.drain, "drain", 0, "`d` when it is told to stop (SIGTERM), a member of a cluster waits at most "+
		"this long until the "+
		"others can do without it; then it transfers the leadership and moves its clients to them within 5s "+
		"(default: it stops at once)")
	fs.Var(&c.without, "without", "`numbers` (2 or 2,3) of members for which the first start of a cluster does "+
		"not wait: "+
		"they have never worked in it, and do not run")
	fs.Var(&c.myID, "myid", "`number` of this member in a cluster, or the word hostname: the number at the end of the "+
		"host's name and one, as lockkeeper-1 is member 2. It is written into dataDir/myid if that is missing; "+
		"a file with another number stops the start")
	fs.BoolVar(&c.ignoreZooKeeper, "ignore-zookeeper-data", false,
		"start empty although dataDir has data of ZooKeeper (version-2/), which is left alone and not read; "+
			"without it that is refused")
}

func (c *serveCommand) run(e env, args []string) error {
	cfg, level, err := c.config(e, args)
	if err != nil {
		return err
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		// Garbage is collected more often rather than that the process grows beyond maxMemory.
		debug.SetMemoryLimit(int64(cfg.WithDefaults().MaxMemory))
	}
	cfg.Logger = slog.New(c.logHandler(e.stderr, level))
	cfg.Logger.Debug("timers may be late", "slack", timerslack.Current())
	if file := os.Getenv(testClockEnv); file != "" {
		cfg.Machine.Now = testClock(file)
	}
	if file := os.Getenv(testSuspendsEnv); file != "" {
		cfg.Machine.Clock = testSuspends(file)
	}
	tell := func(state string) {
		if err := notify(e.variables["NOTIFY_SOCKET"], state); err != nil {
			cfg.Logger.Warn(err.Error())
		}
	}
	var replaced time.Time // when this member was last started again to have its disk replaced
	for {
		s, sig, err := startMember(cfg, e)
		if sig != nil {
			fmt.Fprintf(e.stderr, "lockkeeper: not started: stopped by a signal (%v) before clients could connect\n",
				sig)
			return nil
		}
		if err != nil && (cfg.Data.DiskFullStops == 0 || !errors.Is(err, datadir.ErrDiskFull)) {
			return startError(e, err)
		}
		if err == nil {
			fmt.Fprintln(e.stdout, startupLine(s.ClientAddr(), s.HTTPAddr(), &cfg))
			stopTelling := tellReadiness(s, tell)
			select {
			case <-s.Failed():
				stopTelling()
			case sig := <-e.signals:
				stopTelling()
				cfg.Logger.Info("stopping", "signal", sig.String())
				tell("STOPPING=1")
				return stop(s, e, c.drain)
			}
			err = s.Err()
			cerr := s.Close()
			if s.MayReplaceDisk(err) && time.Since(replaced) > replacePause {
				replaced = time.Now()
				continue // the start finds the fault in the files, and sets them aside
			}
			if !errors.Is(err, datadir.ErrDiskFull) {
				// The cause of the failure matters; an error of Close after it seldom does.
				fmt.Fprintf(e.stderr, "lockkeeper: this member cannot go on: %v\n", errors.Join(err, cerr))
				return exitStatus(exitFailed)
			}
		}
		cfg.Data.DiskFullStops++
		tell("STATUS=disk full: waits for room")
		_, sig = untilSignal(e, signalRepeat, func(ctx context.Context) error {
			return datadir.AwaitRoom(ctx, cfg) // fails only when ctx ends
		})
		if sig != nil {
			cfg.Logger.Info("stopping", "signal", sig.String())
			return nil
		}
	}
}

const (
	// readyStep is how often the service manager's knowledge is brought up to date.
	readyStep = 200 * time.Millisecond
	// readyWithoutLeader is for how long a start waits for a leader. The members of a new cluster
	// may be started one after the other, each start waited for.
	readyWithoutLeader = 10 * time.Second
)

// tellReadiness tells the service manager that this member has started when it counts (GET /ready),
// or when it has known no leader for readyWithoutLeader; and from then on whether it counts. It
// ends when the function that it returns is called.
func tellReadiness(s *server.Server, tell func(state string)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(readyStep)
		defer ticker.Stop()
		started, told := false, false
		for first := true; ; first = false {
			ready, why := s.Ready()
			state := "STATUS=not ready: " + why
			if ready {
				state = fmt.Sprintf("STATUS=serves clients on %v", s.ClientAddr())
			}
			since, led := s.Replica().LeaderKnown()
			begins := !started && (ready || !led && time.Since(since) >= readyWithoutLeader)
			if begins {
				started = true
				state = "READY=1\n" + state
			}
			if first || begins || ready != told {
				tell(state)
			}
			told = ready
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// logHandler writes the log in the format that was chosen. Ids of sessions and zxids are
// texts like 0x10 in either.
func (c *serveCommand) logHandler(w io.Writer, level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if c.logFormat == "json" {
		options.ReplaceAttr = jsonValue
		return slog.NewJSONHandler(w, options)
	}
	return slog.NewTextHandler(w, options)
}

// jsonValue writes values with a String method, such as durations and session ids, as text.
func jsonValue(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case slog.Level, time.Time, error:
	case fmt.Stringer:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

type started struct {
	member *server.Server
	err    error
}

func startMember(cfg server.Config, e env) (*server.Server, os.Signal, error) {
	r, sig := untilSignal(e, signalRepeat, func(ctx context.Context) started {
		s, err := server.StartContext(ctx, cfg)
		return started{s, err}
	})
	if sig != nil && r.member != nil {
		_ = r.member.Close()
	}
	return r.member, sig, r.err
}

func (c *serveCommand) config(e env, args []string) (cfg server.Config, level slog.Level, err error) {
	level = slog.LevelWarn
	if len(args) == 1 {
		level = slog.LevelInfo
		switch {
		case c.clientAddr != "":
			return cfg, level, wrongUsage("-client-address is for a start without a file; "+
				"set clientPort and clientPortAddress in %s", args[0])
		case c.dataDir != "":
			return cfg, level, wrongUsage("-data-dir is for a start without a file; set dataDir in %s", args[0])
		case c.console != "":
			return cfg, level, wrongUsage("-console is for a start without a file; set admin.serverAddress and "+
				"admin.serverPort in %s", args[0])
		}
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		return cfg, level, wrongUsage("-log-format must be text or json, not %q", c.logFormat)
	}
	if c.logLevel != "" && level.UnmarshalText([]byte(c.logLevel)) != nil {
		return cfg, level, wrongUsage("-log-level must be debug, info, warn or error, not %q", c.logLevel)
	}
	if len(args) == 0 && c.myID.id != nil {
		return cfg, level, wrongUsage("-myid is for a start with a file that has server.N lines")
	}
	if len(args) == 0 {
		cfg = server.Config{
			Client: zoocfg.Client{Addr: c.clientAddr},
			Data:   zoocfg.Data{Dir: cmp.Or(c.dataDir, zoocfg.DefaultDataDir)},
		}
		if c.console != consoleOff {
			cfg.HTTP.Addr, cfg.HTTP.Optional = cmp.Or(c.console, usualConsole), c.console == ""
		}
	} else {
		var options []zoocfg.Option
		if c.allowUnknown {
			options = append(options, zoocfg.AllowUnknownKeys)
		}
		if c.myID.id != nil {
			options = append(options, zoocfg.MyID(*c.myID.id))
		}
		if cfg, err = server.LoadConfig(args[0], options...); err != nil {
			for _, n := range cfg.Notices() {
				if n.Level >= level {
					fmt.Fprintf(e.stderr, "%v\n", n)
				}
			}
			return cfg, level, startError(e, err)
		}
	}
	for _, id := range c.without {
		if id == int(cfg.Cluster.ID) || !slices.ContainsFunc(cfg.Cluster.Members,
			func(m zoocfg.Member) bool { return int(m.ID) == id }) {
			return cfg, level, wrongUsage("-without %d: it must name other members of the cluster", id)
		}
	}
	cfg.Cluster.Without = c.without
	cfg.Data.IgnoreZooKeeper = c.ignoreZooKeeper
	cfg.Data.Import = cfg.Data.Import || c.imports
	return cfg, level, nil
}

// startError writes why the member does not start. Each fault begins its line, so that editors find
// the place.
func startError(e env, err error) error {
	var faults zoocfg.Faults
	var fault zoocfg.Fault
	switch {
	case errors.As(err, &faults):
		fmt.Fprintf(e.stderr, "%v\nlockkeeper: not started\n", faults)
	case errors.As(err, &fault):
		fmt.Fprintf(e.stderr, "%v\nlockkeeper: not started\n", fault)
	default:
		fmt.Fprintf(e.stderr, "lockkeeper: not started: %v\n", err)
	}
	return exitStatus(exitFailed)
}

// startupLine says where the member listens, where its data and its console are, and how to stop
// it. http is nil if the member has no console.
func startupLine(clients, http net.Addr, cfg *server.Config) string {
	where, dataDir := clients.String(), cfg.Data.Dir
	if tcp, ok := clients.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		where = fmt.Sprintf("port %d of every address", tcp.Port)
	}
	if abs, err := filepath.Abs(dataDir); err == nil {
		dataDir = abs
	}
	console, off := "", ""
	switch {
	case http != nil:
		console = " shows its locks at " + consoleURL(http, cfg.HTTP.TLS == zoocfg.TLSOnly) + ","
	case cfg.File != "" && !cfg.Given("admin.enableServer"):
		off = fmt.Sprintf(" Its console is off: admin.serverAddress=127.0.0.1 in %s opens it.", cfg.File)
	}
	return fmt.Sprintf("lockkeeper listens on %s, keeps its data in %s,%s and stops at Ctrl-C.%s", where, dataDir,
		console, off)
}

// usualConsole is where a member without a file has its console, and consoleOff turns it off.
const (
	usualConsole = "127.0.0.1:8080"
	consoleOff   = "off"
)

// consoleURL is the address of the console for a browser on this machine.
func consoleURL(at net.Addr, tls bool) string {
	scheme, host := "http", at.String()
	if tls {
		scheme = "https"
	}
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return scheme + "://" + host + "/"
}

// signalRepeat is how long after the first signal another one counts as the same: timeout(1) and
// some supervisors send a signal to the process and to its group.
const signalRepeat = time.Second

// stop shuts the member down, unless a second signal comes first. With drain it does so when the
// other members can do without it, or drain is over.
func stop(s *server.Server, e env, drain time.Duration) error {
	stopped := make(chan error, 1)
	go func() {
		if drain > 0 {
			s.Drain(context.Background(), drain)
		}
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		stopped <- s.Shutdown(ctx)
	}()
	for began := time.Now(); ; {
		select {
		case err := <-stopped:
			if err != nil {
				fmt.Fprintf(e.stderr, "lockkeeper: stopped, but not cleanly: %v\n", err)
				return exitStatus(exitFailed)
			}
			return nil
		case sig := <-e.signals:
			if time.Since(began) < signalRepeat {
				continue
			}
			fmt.Fprintf(e.stderr, "lockkeeper: second signal (%v), stopped at once\n", sig)
			return signalStatus(sig)
		}
	}
}

// testClockEnv names a file that holds by how much this member's wall clock is wrong, as 90s or
// -24h. It is read whenever the time is needed. Tests set the clock of one member with it.
const testClockEnv = "LOCKKEEPER_TEST_CLOCK"

// testClock is a wall clock that is wrong by the duration in the file, or right without one.
func testClock(file string) func() time.Time {
	return func() time.Time {
		return time.Now().Round(0).Add(durationIn(file)) // without the monotonic clock
	}
}

// testSuspendsEnv names a file that holds for how long this member's machine has been suspended, as
// 4.2s. It is read whenever the time is needed, and never becomes shorter. Tests stop the process,
// add the time for which it was stopped, and let it go on: then its clocks are as after a suspend.
const testSuspendsEnv = "LOCKKEEPER_TEST_SUSPENDS"

// testSuspends is the clock of a machine that has been suspended for the duration in the file.
func testSuspends(file string) *clock.Clock {
	asleep := func() time.Duration { return durationIn(file) }
	return clock.New(func() time.Time { return time.Now().Add(-asleep()) }, asleep)
}

// durationIn is the duration in a file; 0 if there is none.
func durationIn(file string) time.Duration {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return d
}

// notify sends the service manager the state of this process, as sd_notify(3) does: with a datagram
// to socket, a path or an abstract name behind an @. Without one it does nothing. The state is
// READY=1, STOPPING=1 or STATUS=text, or lines of these.
func notify(socket, state string) error {
	if socket == "" {
		return nil
	}
	c, err := net.Dial("unixgram", socket)
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("tell the service manager %q: %w", state, err)
	}
	return nil
}

// demoCommand shows a cluster in one process.
type demoCommand struct{ length time.Duration }

func (c *demoCommand) flags(fs *flag.FlagSet, _ env) {
	durationVar(fs, &c.length, "for", 0, "`d` ends by itself after d (default: it goes on until Ctrl-C)")
}

// demoGrace is for how long the members of a demo may take to stop.
const demoGrace = 15 * time.Second

func (c *demoCommand) run(e env, _ []string) error {
	err, _ := untilSignal(e, demoGrace, func(ctx context.Context) error {
		return demo.Run(ctx, demo.Config{Out: e.stdout, Command: ownName(), For: c.length})
	})
	return err
}

// ownName is how a user has called this program: its path, or go run.
func ownName() string {
	if strings.Contains(os.Args[0], string(filepath.Separator)+"go-build") { // go run's place
		return "go run ./cmd/lockkeeper"
	}
	return os.Args[0]
}
