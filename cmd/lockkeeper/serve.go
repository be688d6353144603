package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

const serveUsage = `Usage: lockkeeper serve [flags] [zoo.cfg]

Starts a member and runs until it is told to stop. Without a file, the member is alone,
listens on port 2181 of every address, keeps its data in ./lockkeeper-data, and has
ZooKeeper's defaults for the rest (tickTime 3000 ms, sessions of 6 to 60 s, 60 connections
per client address).

With a file, it does what the file says. The syntax and the keys are ZooKeeper's; dataDir
and clientPort are required. With several server.N lines it is the member whose number
stands in dataDir/myid. A setting that ZooKeeper takes only as a Java system property
(zookeeper.snapCount, jute.maxbuffer, ...) is taken as a key of the file, with or without
"zookeeper." in front. 'lockkeeper help config' describes every key. All faults are reported
with file, line, key and reason, misspelt keys among them, and the member does not start.
Nor does it start when a key asks for protection that is not there (TLS, SASL).

When clients can connect it prints one line on standard output. The log goes to standard
error. GOGC and GOMEMLIMIT set the pace of the garbage collector, as for any Go program;
without them a small heap grows to some 30 MB before there is a collection.
GOMAXPROCS is on how many cores the member runs at a time.

Flags:
	-client-address host:port   where clients connect; only without a file (default :2181)
	-data-dir directory         where the data is; only without a file (default lockkeeper-data)
	-log-level level            debug, info, warn or error (default info with a file, else warn)
	-allow-unknown-keys         start although a key of the file looks like a misspelt one
	-ignore-zookeeper-data      start empty although dataDir has data of ZooKeeper (version-2/),
	                            which is left alone and not read; without it that is refused

SIGINT, SIGTERM and SIGHUP stop it: it transfers the leadership if it has it, and closes its
connections in order. The configuration is not read again. A second signal that comes more
than a second after the first one cuts the stop short.

Exit status: 0 stopped by a signal; 1 could not start, or could not go on; 2 wrong command
line; 128 + n: a second signal, number n, cut the stop short.
`

// shutdownTimeout is how long clients may take to close their side when the member stops.
const shutdownTimeout = 5 * time.Second

func serve(args []string, e env) int {
	cfg, level, status := serveConfig(args, e)
	if status >= 0 {
		return status
	}
	room := heapRoom(os.Getenv)
	defer runtime.KeepAlive(room)
	cfg.Logger = slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: level}))
	if file := os.Getenv(testClockEnv); file != "" {
		cfg.Now = testClock(file)
	}
	for {
		s, err, sig := startMember(cfg, e)
		if sig != nil {
			fmt.Fprintf(e.stderr, "lockkeeper: not started: stopped by a signal (%v) before clients could connect\n", sig)
			return exitOK
		}
		if err != nil && (cfg.DiskFullStops == 0 || !errors.Is(err, server.ErrDiskFull)) {
			return startError(err, e)
		}
		if err == nil {
			fmt.Fprintln(e.stdout, startupLine(s.ClientAddr(), cfg.DataDir))
			select {
			case <-s.Failed():
			case sig := <-e.signals:
				cfg.Logger.Info("stopping", "signal", sig.String())
				return stop(s, e)
			}
			err = s.Err()
			if cerr := s.Close(); !errors.Is(err, server.ErrDiskFull) {
				// What matters is why it failed; how it then closed is seldom news.
				fmt.Fprintf(e.stderr, "lockkeeper: this member cannot go on: %v\n", errors.Join(err, cerr))
				return exitFailed
			}
		}
		cfg.DiskFullStops++
		_, sig = untilSignal(e, func(ctx context.Context) error {
			return server.AwaitRoom(ctx, cfg) // fails only when ctx ends
		})
		if sig != nil {
			cfg.Logger.Info("stopping", "signal", sig.String())
			return exitOK
		}
	}
}

// started is what came of a start.
type started struct {
	member *server.Server
	err    error
}

// startMember starts the member. A signal ends that, and is returned.
func startMember(cfg server.Config, e env) (*server.Server, error, os.Signal) {
	r, sig := untilSignal(e, func(ctx context.Context) started {
		s, err := server.StartContext(ctx, cfg)
		return started{s, err}
	})
	if sig != nil && r.member != nil {
		_ = r.member.Close()
	}
	return r.member, r.err, sig
}

// untilSignal returns what f returns. A signal ends f's context and is returned; f then has
// signalRepeat to return, after which the end of the process ends it.
func untilSignal[T any](e env, f func(context.Context) T) (result T, sig os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- f(ctx) }()
	select {
	case result = <-done:
	case sig = <-e.signals:
		cancel()
		select {
		case result = <-done:
		case <-time.After(signalRepeat):
		}
	}
	return result, sig
}

// serveConfig reads flags and file. A status of 0 or more ends the command.
func serveConfig(args []string, e env) (cfg server.Config, level slog.Level, status int) {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	clientAddr := fs.String("client-address", "", "")
	dataDir := fs.String("data-dir", "", "")
	levelName := fs.String("log-level", "", "")
	ignoreZooKeeper := fs.Bool("ignore-zookeeper-data", false, "")
	allowUnknown := fs.Bool("allow-unknown-keys", false, "")
	if status, done := parseFlags(fs, serveUsage, args, e); done {
		return cfg, level, status
	}
	switch {
	case fs.NArg() > 1:
		return cfg, level, usageError("serve", e, "one configuration file, please; flags go in front of it: unexpected %q", fs.Arg(1))
	case fs.NArg() == 1 && *clientAddr != "":
		return cfg, level, usageError("serve", e, "-client-address is for a start without a file; set clientPort and clientPortAddress in %s", fs.Arg(0))
	case fs.NArg() == 1 && *dataDir != "":
		return cfg, level, usageError("serve", e, "-data-dir is for a start without a file; set dataDir in %s", fs.Arg(0))
	}
	level = slog.LevelWarn
	if fs.NArg() == 1 {
		level = slog.LevelInfo
	}
	if *levelName != "" {
		if err := level.UnmarshalText([]byte(*levelName)); err != nil {
			return cfg, level, usageError("serve", e, "-log-level must be debug, info, warn or error, not %q", *levelName)
		}
	}
	if fs.NArg() == 1 {
		var options []zoocfg.Option
		if *allowUnknown {
			options = append(options, zoocfg.AllowUnknownKeys)
		}
		cfg, err := server.LoadConfig(fs.Arg(0), options...)
		if err != nil {
			for _, n := range cfg.Notices() {
				if n.Level >= level {
					fmt.Fprintf(e.stderr, "%v\n", n)
				}
			}
			return cfg, level, startError(err, e)
		}
		cfg.IgnoreZooKeeperData = *ignoreZooKeeper
		return cfg, level, -1
	}
	cfg = server.Config{ClientAddr: *clientAddr, DataDir: *dataDir, IgnoreZooKeeperData: *ignoreZooKeeper}
	if cfg.DataDir == "" {
		cfg.DataDir = zoocfg.DefaultDataDir
	}
	return cfg, level, -1
}

// startError says why the member does not start. Faults stand at the beginning of their lines, so
// that editors find the place.
func startError(err error, e env) int {
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
	return exitFailed
}

// startupLine tells a person where it listens, where its data is, and how to stop it.
func startupLine(at net.Addr, dataDir string) string {
	where := at.String()
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		where = fmt.Sprintf("port %d of every address", tcp.Port)
	}
	if abs, err := filepath.Abs(dataDir); err == nil {
		dataDir = abs
	}
	return fmt.Sprintf("lockkeeper listens on %s, keeps its data in %s, and stops at Ctrl-C.", where, dataDir)
}

// signalRepeat is how long after the first signal another one is taken for the same: timeout(1) and
// some supervisors send it to the process and to its group.
const signalRepeat = time.Second

// stop shuts the member down, unless a second signal comes first.
func stop(s *server.Server, e env) int {
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		stopped <- s.Shutdown(ctx)
	}()
	for began := time.Now(); ; {
		select {
		case err := <-stopped:
			if err != nil {
				fmt.Fprintf(e.stderr, "lockkeeper: stopped, but not cleanly: %v\n", err)
				return exitFailed
			}
			return exitOK
		case sig := <-e.signals:
			if time.Since(began) < signalRepeat {
				continue
			}
			fmt.Fprintf(e.stderr, "lockkeeper: second signal (%v), stopped at once\n", sig)
			if n, ok := sig.(syscall.Signal); ok {
				return exitSignal + int(n)
			}
			return exitSignal + int(syscall.SIGINT)
		}
	}
}
