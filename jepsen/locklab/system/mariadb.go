package system

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	_ "github.com/go-sql-driver/mysql" // the driver

	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

// MariaDBName is the data source of a server of MariaDB, for database/sql's driver "mysql".
func MariaDBName(addr string) string {
	return "root@tcp(" + addr + ")/test?timeout=1s&parseTime=true&interpolateParams=true"
}

// mariaDB is a system of MariaDB: one server, or a primary with an asynchronous replica.
type mariaDB struct {
	*programs
	// leads is the server that the operator lets take writes: read_only is off there.
	leads int
}

// mariaServer is one of its servers. It starts read-only; the operator opens the primary.
type mariaServer struct {
	*program
	system *mariaDB
	index  int
}

// Start implements Server.
func (s *mariaServer) Start(ctx context.Context) error {
	if err := s.program.Start(ctx); err != nil || s.index != s.system.leads {
		return err
	}
	return mariaDo(ctx, s.addr, "set global read_only=0")
}

// mariaDo runs statements.
func mariaDo(ctx context.Context, addr string, statements ...string) error {
	db, err := sql.Open("mysql", MariaDBName(addr))
	if err != nil {
		return err
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("system: mariadb: %s: %w", s, err)
		}
	}
	return nil
}

// newMariaServer makes the data directory of a server.
func (m *mariaDB) newServer(ctx context.Context, site Site, port int) error {
	i, dir := len(m.servers), site.Dir
	place := site.place(i)
	name := fmt.Sprintf("mariadb-%d", i+1)
	data := filepath.Join(dir, name)
	install := exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+data, "--user=root",
		"--auth-root-authentication-method=normal", "--skip-name-resolve", "--skip-log-bin")
	if err := jepsen.Run(ctx, "mariadb-install-db", install, filepath.Join(dir, name+".install.log")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(data, "test"), 0o755); err != nil { // the database
		return fmt.Errorf("system: %w", err)
	}
	bind, users := place.ClientHost, filepath.Join(dir, "users.sql")
	text := ""
	if place.PeerHost != bind { // it takes one address only, and users from this machine only
		bind = "0.0.0.0"
		text = "set sql_log_bin=0;\ncreate user if not exists root@'%';\ngrant all privileges on *.* to root@'%';\n"
	}
	if err := os.WriteFile(users, []byte(text), 0o644); err != nil {
		return fmt.Errorf("system: %w", err)
	}
	p := &program{name: name, addr: at(place.ClientHost, port), place: place, dir: dir, data: data, clock: NewClock(dir, name),
		command: []string{"mariadbd", "--no-defaults",
			"--datadir=" + data, "--user=root", "--port=" + strconv.Itoa(port), "--bind-address=" + bind,
			"--socket=" + filepath.Join(data, "s"), "--skip-name-resolve", "--server-id=" + strconv.Itoa(i+1), "--read-only=1",
			"--log-bin=" + filepath.Join(data, "bin"), "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--init-file=" + users}}
	p.ready = func(ctx context.Context) error { return mariaDo(ctx, p.addr, "select 1") }
	m.servers = append(m.servers, &mariaServer{p, m, i})
	return nil
}

func startMariaDB(ctx context.Context, site Site) (System, error) {
	m, err := newMariaDB(ctx, site, 1)
	if err != nil {
		return nil, err
	}
	_, err = m.start(ctx)
	return m, err
}

func newMariaDB(ctx context.Context, site Site, n int) (*mariaDB, error) {
	ports, err := freeport.Take(n)
	if err != nil {
		return nil, err
	}
	m := &mariaDB{programs: &programs{}}
	for _, port := range ports {
		if err := m.newServer(ctx, site, port); err != nil {
			return nil, err
		}
	}
	m.primary = func(context.Context) (int, error) { return m.leads, nil }
	m.requests = m.questions
	return m, nil
}

// questions adds up the statements that were executed.
func (m *mariaDB) questions(ctx context.Context) (sum int64) {
	for _, s := range m.servers {
		db, err := sql.Open("mysql", MariaDBName(s.Addr()))
		if err != nil {
			continue
		}
		var name string
		var n int64
		if db.QueryRowContext(ctx, "show global status like 'Questions'").Scan(&name, &n) == nil {
			sum += n
		}
		_ = db.Close()
	}
	return sum
}

// startMariaDBReplica starts a primary and an asynchronous replica, which the lab, as the operator,
// makes the primary when that is lost.
func startMariaDBReplica(ctx context.Context, site Site) (System, error) {
	m, err := newMariaDB(ctx, site, 2)
	if err != nil {
		return nil, err
	}
	m.failover = m.promote
	if _, err := m.start(ctx); err != nil {
		return nil, err
	}
	primary, replica := m.servers[0].(*mariaServer), m.servers[1].(*mariaServer)
	_, port, err := net.SplitHostPort(primary.addr)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := mariaDo(ctx, replica.addr, "change master to master_host='"+site.place(0).PeerHost+"', master_user='root', master_port="+port+
		", master_connect_retry=1, master_use_gtid=slave_pos", "start slave"); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// promote makes the replica the primary.
func (m *mariaDB) promote(ctx context.Context) error {
	replica := m.servers[1-m.leads].(*mariaServer)
	if err := mariaDo(ctx, replica.addr, "stop slave", "reset slave all", "set global read_only=0"); err != nil {
		return err
	}
	m.leads = replica.index
	return nil
}
