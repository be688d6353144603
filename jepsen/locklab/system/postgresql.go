package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

// PostgreSQLName is the data source of a server of PostgreSQL.
func PostgreSQLName(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable&connect_timeout=2"
}

// postgresPrograms are the directories that may have the programs of PostgreSQL, the newest first.
func postgresPrograms() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", fmt.Errorf("postgres: %w (apt-get install postgresql)", jepsen.ErrMissing)
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

func needsPostgreSQL() error {
	_, err := postgresPrograms()
	if err == nil && os.Getuid() == 0 {
		_, err = user.Lookup("postgres") // it does not run as root
	}
	return err
}

// asPostgres is a command line that runs as the user postgres, if this one is root. It dies with
// the lab like everything else.
func asPostgres(command ...string) []string {
	if os.Getuid() != 0 {
		return command
	}
	return append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"}, command...)
}

// letIn lets other users pass through the lab's directories for temporary files above a directory.
func letIn(dir string) error {
	for dir = filepath.Dir(dir); os.Getuid() == 0 && strings.HasPrefix(filepath.Base(dir), "lockkeeper-jepsen-"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			return fmt.Errorf("system: %w", err)
		}
	}
	return nil
}

// startPostgreSQL starts one server, with its data in a directory of its own, which the user
// postgres must be able to reach.
func startPostgreSQL(ctx context.Context, site Site) (System, error) {
	dir := site.Dir
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	ports, err := freeport.Take(1)
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp("", "locklab-postgresql-")
	if err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	if err := letIn(data); err != nil {
		return nil, err
	}
	s := &programs{cleanUp: func() error { return os.RemoveAll(data) }}
	if owner, err := user.Lookup("postgres"); err == nil && os.Getuid() == 0 {
		uid, err1 := strconv.Atoi(owner.Uid)
		gid, err2 := strconv.Atoi(owner.Gid)
		if err := errors.Join(err1, err2, os.Chown(data, uid, gid)); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	command := asPostgres(filepath.Join(bin, "initdb"), "--auth=trust", "--username=postgres", "--no-sync", "--pgdata="+data)
	initdb := exec.Command(command[0], command[1:]...)
	initdb.Dir = "/"
	if err := jepsen.Run(ctx, "initdb", initdb, filepath.Join(dir, "initdb.log")); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	const name = "postgresql-1"
	p := &program{name: name, addr: local(ports[0]), dir: dir, data: data, clock: NewClock(data, name), command: asPostgres(filepath.Join(bin, "postgres"), "-D", data,
		"-p", strconv.Itoa(ports[0]), "-h", "127.0.0.1", "-k", data)}
	p.occupied = "pre-existing shared memory block"
	p.ready = func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, PostgreSQLName(p.addr))
		if err != nil {
			return err
		}
		return c.Close(ctx)
	}
	s.servers = []Server{p}
	return s.start(ctx)
}
