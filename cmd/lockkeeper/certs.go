package main

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"lockkeeper/server"
	"lockkeeper/server/secure/certs"
	"lockkeeper/server/zoocfg"
)

// certsCommand makes certificates.
type certsCommand struct {
	hosts      string
	days       int
	lifetime   int // of an authority, in days
	name       string
	at         string
	zookeeper  bool
	expiryDays int

	e   env
	dir certs.Dir
}

const day = 24 * time.Hour

func (c *certsCommand) flags(fs *flag.FlagSet, _ env) {
	fs.StringVar(&c.hosts, "host", "", "`host,...` init, member: names and addresses at which clients and "+
		"members reach the member, beside the ones in its server line")
	fs.IntVar(&c.days, "days", int(certs.DefaultValidity/day), "`n` how long new certificates are valid, in "+
		"days (default 365)")
	fs.IntVar(&c.lifetime, "authority-days", int(certs.DefaultAuthorityValidity/day), "`n` init, rotate: how "+
		"long the new authority is valid, in days (default 3650)")
	fs.StringVar(&c.name, "authority", "", "`name` init, rotate: the name of the new authority (default: "+
		"lockkeeper, the date and a random number)")
	fs.StringVar(&c.at, "at", "", "`path` where a holder has its directory on its own machine, for the lines "+
		"that are printed (default: where it is made)")
	fs.BoolVar(&c.zookeeper, "zookeeper", false, "print the lines that ZooKeeper 3.8 and later reads, for "+
		"members that are ZooKeeper")
	fs.IntVar(&c.expiryDays, "expiring", 0, "`n` list: end with status 1 if something expires within n days")
}

func (c *certsCommand) run(e env, args []string) error {
	if len(args) < 2 {
		return wrongUsage("say what to do, and in which directory: init, member, client, renew, rotate, retire " +
			"or list, and DIR")
	}
	const most = 100 * 365
	for _, days := range []int{c.days, c.lifetime, c.expiryDays + 1} {
		if days < 1 || days > most {
			return wrongUsage("-days, -authority-days and -expiring are numbers of days, of at most 100 years")
		}
	}
	path, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	c.e, c.dir = e, certs.Dir{Path: path, Validity: time.Duration(c.days) * day,
		AuthorityValidity: time.Duration(c.lifetime) * day}
	what, rest := args[0], args[2:]
	if c.hosts != "" && what != "init" && what != "member" {
		return wrongUsage("-host is for init and member")
	}
	if most, ok := map[string]int{"init": 1, "member": 1, "rotate": 0, "retire": 0, "list": 0}[what]; ok &&
		len(rest) > most {
		return wrongUsage("%s takes %d arguments after the directory, not %d", what, most, len(rest))
	}
	if err := c.act(what, rest); err != nil {
		return certsError{err}
	}
	return nil
}

// certsError is an error of package certs after the name of the command, which is the same.
type certsError struct{ error }

// Error implements error.
func (e certsError) Error() string { return strings.TrimPrefix(e.error.Error(), "certs: ") }

// Unwrap returns the cause.
func (e certsError) Unwrap() error { return e.error }

func (c *certsCommand) act(what string, rest []string) error {
	switch what {
	case "init":
		return c.init(rest)
	case "member":
		return c.members(rest, true)
	case "client":
		return c.clients(rest)
	case "renew":
		return c.renew(rest)
	case "rotate":
		return c.rotate()
	case "retire":
		return c.retire()
	case "list":
		return c.list()
	}
	return wrongUsage("%q is not one of init, member, client, renew, rotate, retire and list", what)
}

func (c *certsCommand) authorityName() string {
	return cmp.Or(c.name, fmt.Sprintf("lockkeeper %s %06x", time.Now().UTC().Format(time.DateOnly),
		rand.Uint32N(1<<24)))
}

func (c *certsCommand) init(args []string) error {
	requests, cfg, err := c.requests(args, false)
	if err != nil {
		return err
	}
	if err := c.dir.Init(c.authorityName()); err != nil {
		return err
	}
	fmt.Fprintf(c.e.stdout, "# Made an authority in %s. Its key issues certificates: keep it from the members.\n",
		filepath.Join(c.dir.Path, "authority"))
	return c.issueMembers(requests, cfg)
}

// members issues certificates for members, of those server lines that have none yet.
func (c *certsCommand) members(args []string, more bool) error {
	requests, cfg, err := c.requests(args, more)
	if err != nil {
		return err
	}
	return c.issueMembers(requests, cfg)
}

func (c *certsCommand) issueMembers(requests []certs.Request, cfg server.Config) error {
	made, err := c.dir.Issue(requests...)
	c.sayMade(made)
	if err != nil {
		return err
	}
	c.memberLines(made, cfg)
	return nil
}

// requests are the members that get certificates: one for each server line of a zoo.cfg; without
// such lines one. If more is set, members that have a certificate are left out, and the argument
// may be the name of a member instead.
func (c *certsCommand) requests(args []string, more bool) (requests []certs.Request, cfg server.Config, err error) {
	extra := strings.FieldsFunc(c.hosts, func(r rune) bool { return r == ',' || r == ' ' })
	if len(args) == 0 && more {
		return nil, cfg, wrongUsage("member needs a zoo.cfg, or the name of the member and -host")
	}
	name := "member"
	if len(args) == 1 {
		if _, err := os.Stat(args[0]); more && len(extra) > 0 && err != nil {
			return []certs.Request{{Name: args[0], Hosts: extra, Member: true}}, cfg, nil
		}
		if cfg, err = server.LoadConfig(args[0], zoocfg.AnyMember); err != nil {
			return nil, cfg, err
		}
	}
	for _, m := range cfg.Cluster.Members {
		name := fmt.Sprintf("member-%d", m.ID)
		if _, err := os.Lstat(filepath.Join(c.dir.Path, name)); more && err == nil {
			continue
		}
		requests = append(requests, certs.Request{Name: name, Hosts: append(hostsOf(m), extra...), Member: true})
	}
	switch {
	case len(cfg.Cluster.Members) > 0 && len(requests) == 0:
		return nil, cfg, fmt.Errorf("all members of %s have a certificate in %s ('renew' replaces "+
			"them)", args[0], c.dir.Path)
	case len(cfg.Cluster.Members) > 0:
		return requests, cfg, nil
	case len(extra) == 0:
		extra = []string{"localhost", "127.0.0.1", "::1"}
		if host, err := os.Hostname(); err == nil && host != "localhost" {
			extra = append(extra, host)
		}
	}
	return []certs.Request{{Name: name, Hosts: extra, Member: true}}, cfg, nil
}

// hostsOf are the names and addresses of a member in its server line.
func hostsOf(m server.Member) (hosts []string) {
	client, _, _ := net.SplitHostPort(m.ClientAddr)
	for _, host := range []string{m.Host, client} {
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() ||
			slices.Contains(hosts, host) {
			continue
		}
		hosts = append(hosts, host)
	}
	return hosts
}

func (c *certsCommand) sayMade(made []certs.Holder) {
	for _, h := range made {
		whom := "a client"
		if h.Member {
			whom = strings.Join(h.Hosts, ", ")
		}
		fmt.Fprintf(c.e.stdout, "# Made %s: a certificate of CN=%s for %s, valid until "+
			"%s.\n", h.Dir, h.Name, whom, h.Expires.UTC().Format(time.DateOnly))
	}
}

// memberLines prints the lines that members add to their zoo.cfg: once, if they are the same for
// all.
func (c *certsCommand) memberLines(made []certs.Holder, cfg server.Config) {
	if c.at != "" {
		names := make([]string, 0, len(made))
		for _, h := range made {
			names = append(names, h.Dir)
		}
		fmt.Fprintf(c.e.stdout, "# On the machine of each member its own directory (%s) becomes\n"+
			"# %s, owned by the user that the member runs as.\n# In every zoo.cfg:\n", strings.Join(names, ", "), c.at)
		c.lines(c.at, cfg)
		return
	}
	for _, h := range made {
		fmt.Fprintf(c.e.stdout, "# In the zoo.cfg of %s (-at PATH prints them for another place):\n", h.Name)
		c.lines(h.Dir, cfg)
	}
}

// lines prints the lines of a zoo.cfg with the files of a directory.
func (c *certsCommand) lines(dir string, cfg server.Config) {
	at := func(name string) string { return filepath.Join(dir, name) }
	several := len(cfg.Cluster.Members) > 0
	put := func(key, value string) { fmt.Fprintf(c.e.stdout, "%s=%s\n", key, value) }
	if !cfg.ClientsSpeakTLS() {
		put("secureClientPort", "2182")
	}
	if c.zookeeper {
		put("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")
		put("authProvider.x509", "org.apache.zookeeper.server.auth.X509AuthenticationProvider")
		put("ssl.keyStore.location", at(certs.PairFile))
		put("ssl.trustStore.location", at(certs.AuthorityFile))
		if several {
			put("sslQuorum", "true")
			put("ssl.quorum.keyStore.location", at(certs.PairFile))
			put("ssl.quorum.trustStore.location", at(certs.AuthorityFile))
		}
		return
	}
	put("tls.cert", at(certs.PairFile))
	put("tls.ca", at(certs.AuthorityFile))
	if several {
		put("sslQuorum", "true")
		put("peer.secretFile", at(certs.SecretFile))
	}
	if cfg.Client.Addr != "" || !several {
		fmt.Fprintln(c.e.stdout, "# Clients without TLS are served as long as there is a clientPort.")
	}
	if several {
		fmt.Fprintln(c.e.stdout, "# A running cluster turns sslQuorum and peer.secretFile on in steps: "+
			"docs/security.md, Between members.")
	}
}

func (c *certsCommand) clients(names []string) error {
	if len(names) == 0 {
		return wrongUsage("client needs the name of a client, which is its identity in ACLs")
	}
	var requests []certs.Request
	for _, name := range names {
		requests = append(requests, certs.Request{Name: name})
	}
	made, err := c.dir.Issue(requests...)
	c.sayMade(made)
	if err != nil {
		return err
	}
	for _, h := range made {
		dir := cmp.Or(c.at, h.Dir)
		pair, ca := filepath.Join(dir, certs.PairFile), filepath.Join(dir, certs.AuthorityFile)
		fmt.Fprintf(c.e.stdout, "# In ACLs: x509:CN=%s\n"+
			"# lockkeeper:\n-tls-ca %s -tls-cert %s\n"+
			"# kazoo:\nuse_ssl=True, ca=%q, certfile=%q, keyfile=%q\n"+
			"# Java (zkCli, Curator), with Netty in the class path:\n"+
			"-Dzookeeper.client.secure=true -Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty "+
			"-Dzookeeper.ssl.keyStore.location=%s -Dzookeeper.ssl.trustStore.location=%s\n", h.Name, ca, pair, ca, pair,
			pair, pair, ca)
	}
	return nil
}

const readAgain = "A member reads its files again when they are replaced; connections stay.\n"

func (c *certsCommand) renew(names []string) error {
	made, err := c.dir.Renew(names...)
	c.sayMade(made)
	if err != nil {
		return err
	}
	if len(made) == 0 {
		return fmt.Errorf("%s has no certificate of a member or a client", c.dir.Path)
	}
	fmt.Fprint(c.e.stdout, "# Copy each directory to its holder. "+readAgain)
	return nil
}

func (c *certsCommand) rotate() error {
	if err := c.dir.Rotate(c.authorityName()); err != nil {
		return err
	}
	fmt.Fprintf(c.e.stdout, "Made a new authority. The file %s of each holder has both now, and the "+
		"certificates are as they were.\n"+
		"1. Copy %[1]s to every holder, members and clients. "+readAgain+
		"2. lockkeeper certs renew %[2]s, and copy each directory to its holder.\n"+
		"3. lockkeeper certs retire %[2]s, and copy %[1]s to every holder: the old authority is not trusted any "+
		"more.\n",
		certs.AuthorityFile, c.dir.Path)
	return nil
}

func (c *certsCommand) retire() error {
	if err := c.dir.Retire(); err != nil {
		return err
	}
	fmt.Fprintf(c.e.stdout, "The file %s of each holder has the newest authority only. Copy it to every holder. "+
		"%s", certs.AuthorityFile, readAgain)
	return nil
}

func (c *certsCommand) list() error {
	authorities, holders, err := c.dir.List()
	if err != nil {
		return err
	}
	soon := false
	date := func(t time.Time) string {
		left := time.Until(t)
		soon = soon || left < time.Duration(c.expiryDays)*day
		if left < 0 {
			return t.UTC().Format(time.DateOnly) + " (expired)"
		}
		return fmt.Sprintf("%s (%d days)", t.UTC().Format(time.DateOnly), left/day)
	}
	w := tabwriter.NewWriter(c.e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tKIND\tVALID UNTIL\tISSUED BY\tHOSTS")
	for _, a := range authorities {
		fmt.Fprintf(w, "%s\tauthority\t%s\t-\t-\n", a.Name, date(a.Expires))
	}
	for _, h := range holders {
		kind := "client"
		if h.Member {
			kind = "member"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", h.Name, kind, date(h.Expires), h.Issuer,
			cmp.Or(strings.Join(h.Hosts, ", "), "-"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if c.expiryDays > 0 && soon {
		return exitStatus(exitFailed)
	}
	return nil
}
