package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/system"
)

// An agent is a client from the lab's side, with its process and its links to servers and ledger.
type agent struct {
	name, node string
	history    *History
	host       *host
	// servers is between the client (host 1) and each server (host 2 and more), book between the
	// client and the ledger (host 2).
	servers, book *jepsen.Proxies
}

// Hosts of an agent's links: the client, and the first server or the ledger.
const (
	clientHost = 1
	serverHost = 2
)

// block holds back the client's requests to a server, or the server's answers, or lets them through
// again.
func (a *agent) block(server int, out, in bool) error {
	host := serverHost + server
	set := func(from, to int, block bool) error {
		if block {
			return a.servers.Block(from, to)
		}
		return a.servers.Unblock(from, to)
	}
	return errors.Join(set(clientHost, host, out), set(host, clientHost, in))
}

// blockAll does it with all servers.
func (a *agent) blockAll(out, in bool) error {
	var errs []error
	for server := range a.servers.Size() - 1 {
		errs = append(errs, a.block(server, out, in))
	}
	return errors.Join(errs...)
}

// startAgent starts a client in the process of that name; it is ready when its event Ready has
// come.
func startAgent(all *hosts, process string, order Order, servers []string, ledgerAddr string, clock func() *system.Clock,
	h *History) (a *agent, err error) {
	a = &agent{name: order.Name, node: order.Node, history: h, servers: jepsen.NewProxies(1+len(servers), 1),
		book: jepsen.NewProxies(2, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("play: client %s: %w", order.Name, err), a.close())
			a = nil
		}
	}()
	for i, server := range servers {
		addr, err := a.servers.Between(clientHost, serverHost+i, server)
		if err != nil {
			return nil, err
		}
		order.Servers = append(order.Servers, addr)
	}
	if order.Ledger, err = a.book.Between(clientHost, serverHost, ledgerAddr); err != nil {
		return nil, err
	}
	host, err := all.get(process, clock)
	if err != nil {
		return nil, err
	}
	a.host = host
	host.enter(a)
	return a, host.send(Line{Node: a.node, Order: &order})
}

// send gives the client a command.
func (a *agent) send(step Command) error { return a.host.send(Line{Node: a.node, Command: &step}) }

// ends are the events that end a command.
var ends = map[string][]string{
	"lock":   {Locked, Refused},
	"read":   {Read, Failed},
	"check":  {Checked, GaveUp},
	"write":  {Written, GaveUp, Failed},
	"send":   {Sent, GaveUp, Failed},
	"unlock": {Unlocked},
	"loop":   {Looped},
}

// answerTimeout is how long a client's library may take for a command, beyond its Wait, before the
// round is given up: a library may wait for ever for a connection.
const answerTimeout = time.Minute

// do has the client execute a command, and waits for its end.
func (a *agent) do(ctx context.Context, step Command) (Event, error) {
	ctx, cancel := context.WithTimeout(ctx, step.Wait+answerTimeout)
	defer cancel()
	from := a.history.len()
	if err := a.send(step); err != nil {
		return Event{}, err
	}
	return a.history.await(ctx, from, []string{a.name}, append([]string{Killed}, ends[step.Do]...))
}

// act does something to the client's process, together with the other clients there.
func (a *agent) act(what string, do func() (time.Duration, error)) error {
	at, err := a.host.together(a, do)
	if err == nil {
		a.history.Add(Event{At: at, Who: a.name, What: what})
	}
	return err
}

// pause stops the process and its library.
func (a *agent) pause(ctx context.Context) error {
	return a.act(Paused, func() (time.Duration, error) { return a.host.pause(ctx) })
}

func (a *agent) resume() error { return a.act(Resumed, a.host.resume) }

// kill ends the process and its library at once.
func (a *agent) kill() error { return a.act(Killed, a.host.kill) }

// close ends everything.
func (a *agent) close() error {
	var errs []error
	if a.host != nil {
		a.host.leave(a)
		errs = append(errs, a.host.exit())
	}
	return errors.Join(append(errs, a.servers.Close(), a.book.Close())...)
}
