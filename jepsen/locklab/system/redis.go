package system

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/jepsen"
)

// redisServer is a redis-server that writes its log to the disk once a second (appendfsync
// everysec), as Redis advises where data should survive.
func redisServer(site Site, i, port int, more ...string) (*program, error) {
	name, place := fmt.Sprintf("redis-%d", i+1), site.place(i)
	data := filepath.Join(site.Dir, name)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	command := append([]string{"redis-server", "--port", strconv.Itoa(port), "--bind", binds(place), "--protected-mode", "no",
		"--dir", data, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"}, more...)
	p := &program{name: name, addr: at(place.ClientHost, port), place: place, dir: site.Dir, data: data, command: command,
		clock: NewClock(site.Dir, name)}
	p.ready = func(ctx context.Context) error {
		answer, err := RedisAsk(ctx, p.addr, "PING")
		if err == nil && answer != "PONG" {
			err = errors.New(answer) // it loads its data
		}
		return err
	}
	return p, nil
}

// binds are the addresses of a place, for Redis.
func binds(place jepsen.Place) string {
	if place.ClientHost == place.PeerHost {
		return place.ClientHost
	}
	return place.ClientHost + " " + place.PeerHost
}

// RedisAsk sends one command, without blanks in its words, and returns the first line of the
// answer without its mark, and of a bulk string the string.
func RedisAsk(ctx context.Context, addr, command string) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return RedisSay(c, command)
}

// askPatience is how long a server may take to answer.
const askPatience = time.Second

// RedisSay is RedisAsk on a connection. Of an array it returns the first element.
func RedisSay(c net.Conn, command string) (string, error) {
	_ = c.SetDeadline(time.Now().Add(askPatience))
	defer func() { _ = c.SetDeadline(time.Time{}) }()
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		return "", err
	}
	return redisAnswer(bufio.NewReader(c))
}

func redisAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	mark, rest := line[0], strings.TrimSpace(line[1:])
	switch mark {
	case '-':
		return "", errors.New(rest)
	case '*':
		first, err := redisAnswer(r)
		for r.Buffered() > 0 && err == nil { // the other elements
			_, err = r.Discard(r.Buffered())
		}
		return first, err
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		b := make([]byte, n+2)
		for read := 0; read < len(b); {
			k, err := r.Read(b[read:])
			if err != nil {
				return "", err
			}
			read += k
		}
		return string(b[:n]), nil
	}
	return rest, nil
}

// redisRequests adds up the requests that the servers have processed.
func redisRequests(servers []Server) func(context.Context) int64 {
	return func(ctx context.Context) (sum int64) {
		for _, s := range servers {
			info, err := RedisAsk(ctx, s.Addr(), "INFO stats")
			if err != nil {
				continue
			}
			for line := range strings.Lines(info) {
				if n, ok := strings.CutPrefix(strings.TrimSpace(line), "total_commands_processed:"); ok {
					v, _ := strconv.ParseInt(n, 10, 64)
					sum += v
				}
			}
		}
		return sum
	}
}

// startRedises starts n servers that know nothing of each other: one, or the servers of RedLock.
func startRedises(ctx context.Context, site Site, n int) (System, error) {
	ports, err := freeport.Take(site.size(n))
	if err != nil {
		return nil, err
	}
	s := &programs{}
	for i, port := range ports {
		server, err := redisServer(site, i, port)
		if err != nil {
			return nil, err
		}
		s.servers = append(s.servers, server)
	}
	s.requests = redisRequests(s.servers)
	return s.start(ctx)
}

func startRedis(ctx context.Context, site Site) (System, error) { return startRedises(ctx, site, 1) }

func startRedisThree(ctx context.Context, site Site) (System, error) {
	return startRedises(ctx, site, 3)
}

func startRedisFive(ctx context.Context, site Site) (System, error) {
	return startRedises(ctx, site, 5)
}

const (
	sentinels = 3
	// sentinelDownMs is after which silence sentinels take a server for dead. Redis' default is 30
	// s; nobody who waits for a lock would.
	sentinelDownMs = 1000
)

// startSentinel starts a primary, a replica and three sentinels that fail over: one of them in the
// primary's place, two in the replica's.
func startSentinel(ctx context.Context, site Site) (System, error) {
	ports, err := freeport.Take(2 + sentinels)
	if err != nil {
		return nil, err
	}
	primary := site.place(0).PeerHost
	first, err1 := redisServer(site, 0, ports[0])
	second, err2 := redisServer(site, 1, ports[1], "--replicaof", primary+" "+strconv.Itoa(ports[0]))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	s := &programs{servers: []Server{first, second}}
	for i, port := range ports[2:] {
		name, place := fmt.Sprintf("sentinel-%d", i+1), site.place(min(i, 1))
		file := filepath.Join(site.Dir, name+".conf")
		text := fmt.Sprintf("port %d\nbind %s\nprotected-mode no\ndir %s\nsentinel announce-ip %s\n"+
			"sentinel monitor lab %s %d 2\nsentinel down-after-milliseconds lab %d\nsentinel failover-timeout lab 5000\n",
			port, binds(place), site.Dir, place.PeerHost, primary, ports[0], sentinelDownMs)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("system: %w", err)
		}
		p := &program{name: name, addr: at(place.ClientHost, port), place: place, dir: site.Dir,
			command: []string{"redis-sentinel", file}}
		p.ready = func(ctx context.Context) error { _, err := RedisAsk(ctx, p.addr, "PING"); return err }
		s.others = append(s.others, p)
	}
	s.requests = redisRequests(s.servers)
	s.primary = func(ctx context.Context) (int, error) {
		for i, server := range s.servers {
			if role, err := RedisAsk(ctx, server.Addr(), "ROLE"); err == nil && role == "master" {
				return i, nil
			}
		}
		return 0, errors.New("system: no redis says that it is the primary")
	}
	s.failover = func(ctx context.Context) error {
		return jepsen.Poll(ctx, 50*time.Millisecond, func() error { _, err := s.primary(ctx); return err })
	}
	if _, err := s.start(ctx); err != nil {
		return nil, err
	}
	if err := s.awaitReplica(ctx, second); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// awaitReplica waits until the replica follows and the sentinels know of it.
func (s *programs) awaitReplica(ctx context.Context, replica Server) error {
	return jepsen.Poll(ctx, 50*time.Millisecond, func() error {
		info, err := RedisAsk(ctx, replica.Addr(), "INFO replication")
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New("system: the replica does not follow yet")
		}
		for _, sentinel := range s.others {
			known, e := RedisAsk(ctx, sentinel.Addr(), "INFO sentinel")
			if e == nil && !strings.Contains(known, fmt.Sprintf("slaves=1,sentinels=%d", sentinels)) {
				e = errors.New("system: a sentinel does not know all yet")
			}
			err = errors.Join(err, e)
		}
		return err
	})
}
