package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/cmd/lockkeeper/internal/contexts"
	"lockkeeper/recipes"
	"lockkeeper/server/secure"
)

// The environment variables of -servers and -auth.
const (
	serversVariable = "LOCKKEEPER_SERVERS"
	authVariable    = "LOCKKEEPER_AUTH"
)

const defaultServers = "127.0.0.1:2181"

// destination returns the servers of a command, and the context that names them, if one does. The
// first of these counts: the flag -servers or -context, the environment variable, the current
// context, the default. The files of the context exist.
func (e env) destination(servers, name string) (string, *contexts.Context, error) {
	switch {
	case servers != "" && name != "":
		return "", nil, errors.New("-servers and -context: one of them, please")
	case servers != "":
		return servers, nil, nil
	case name == "" && e.variables[serversVariable] != "":
		return e.variables[serversVariable], nil, nil
	case name == defaultContext:
		return defaultServers, nil, nil
	}
	f, err := e.contexts()
	if err != nil {
		return "", nil, err
	}
	if name = cmp.Or(name, f.Current); name == "" {
		return defaultServers, nil, nil
	}
	c, err := f.Find(name)
	if err != nil {
		return "", nil, fmt.Errorf("-context: %w ('lockkeeper context' lists them)", err)
	}
	if _, err := serverList(c.Get(contexts.Servers)); err != nil {
		return "", nil, c.Fault(contexts.Servers, strings.TrimPrefix(err.Error(), "-servers: "))
	}
	for _, key := range []string{contexts.CA, contexts.Cert, contexts.Key, contexts.AuthFile} {
		if file := c.Get(key); file != "" {
			if _, err := os.Stat(file); err != nil {
				return "", nil, c.Fault(key, err.Error())
			}
		}
	}
	return c.Get(contexts.Servers), c, nil
}

// contexts reads the user's file of contexts.
func (e env) contexts() (*contexts.File, error) {
	if e.configDir == "" {
		return new(contexts.File), nil
	}
	return contexts.Load(filepath.Join(e.configDir, "lockkeeper", "contexts"))
}

// serversUsage and contextUsage describe the flags of all clients.
const (
	serversUsage = "`host:port,...` members of the cluster; any that answers will do (default $LOCKKEEPER_SERVERS, " +
		"or the current context, or 127.0.0.1:2181)"
	contextUsage = "`name` the members, and the files for TLS and the login, of this context ('lockkeeper help " +
		"context')"
)

// clientFlags are the flags of every client command, and the fields that its messages need.
type clientFlags struct {
	servers  string
	context  string // that names the servers; empty once they are known
	session  time.Duration
	auth     string
	authFile string
	acl      string // of commands that make nodes; empty: the default of package recipes
	tls      tlsFlags
	json     bool
	verbose  bool // of lock and elect: messages about success, too

	e       env    // for messages
	command string // which begin with its name
	path    string // of the lock that they are about; empty if there is none

	from contexts.Context // where servers come from; the zero value if from no context
}

func (f *clientFlags) flags(fs *flag.FlagSet, e env) {
	f.e, f.command = e, fs.Name()
	fs.Var((*serversFlag)(&f.servers), "servers", serversUsage)
	fs.StringVar(&f.context, "context", "", contextUsage)
	durationVar(fs, &f.session, "session", recipes.DefaultSessionTimeout,
		"`d` session timeout: the cluster keeps this command's locks and nodes for so long after its last "+
			"sign of life "+
			"(default 10s)")
	fs.StringVar(&f.auth, "auth", "", "`user:password` identity for ACLs of the scheme digest; of others: "+
		"scheme:secret (sasl:user:password logs in with SASL)")
	fs.StringVar(&f.authFile, "auth-file", "",
		"`file` the same, in the first line of a file: a command line can be seen by others (default: "+
			"$LOCKKEEPER_AUTH)")
	f.tls.flags(fs, e)
	fs.BoolVar(&f.json, "json", false, "print JSON, one object a line")
}

// resolve completes the flags from the environment and from a context. A context counts as a whole:
// its login and its authorities are never used for servers that have another name.
func (f *clientFlags) resolve() error {
	servers, c, err := f.e.destination(f.servers, f.context)
	if err != nil {
		return err
	}
	f.servers, f.context = servers, ""
	if c == nil {
		return nil
	}
	f.from = *c
	f.tls.complete(c)
	if f.auth == "" && f.authFile == "" && f.e.variables[authVariable] == "" {
		f.authFile = c.Get(contexts.AuthFile)
	}
	return nil
}

// client returns the flags themselves, for commands that embed them.
func (f *clientFlags) client() *clientFlags { return f }

// serversFlag is a list of servers. An empty one, as of a variable that is not set, is a mistake.
type serversFlag string

// String implements flag.Value.
func (s *serversFlag) String() string { return string(*s) }

// Set implements flag.Value.
func (s *serversFlag) Set(text string) error {
	if text == "" {
		return errors.New("no server is named")
	}
	*s = serversFlag(text)
	return nil
}

func serverList(text string) (list []string, err error) {
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if strings.Contains(s, "/") {
			return nil, fmt.Errorf("-servers: %q: a path behind the servers (chroot) is not supported; "+
				"write it in front of the lock's path", s)
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host, port = strings.Trim(s, "[]"), "2181"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
			return nil, fmt.Errorf("-servers: %q is not host:port", s)
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	if len(list) == 0 {
		return nil, errors.New("-servers: no server is named")
	}
	return list, nil
}

// check checks the flags. There may be a warning.
func (f *clientFlags) check() error {
	if f.session < time.Second {
		return fmt.Errorf("-session: %v is less than a second", f.session)
	}
	if err := f.resolve(); err != nil {
		return err
	}
	_, _, err := f.identity()
	_, listErr := serverList(f.servers)
	_, tlsErr := f.tls.config()
	_, aclErr := f.acls()
	if err := cmp.Or(err, listErr, tlsErr, aclErr); err != nil {
		return err
	}
	f.warnOfReadableFile()
	return nil
}

// aclFlag declares -acl, for commands that make nodes.
func (f *clientFlags) aclFlag(fs *flag.FlagSet) {
	fs.StringVar(&f.acl, "acl", "", "`scheme:id:perms,...` the permissions of the new nodes: c create children, "+
		"d delete children, r read, w write, a change the ACL; auth::cdrwa is who -auth says "+
		"(default with -auth, -auth-file or $LOCKKEEPER_AUTH: auth::cdrwa,world:anyone:r; without: world:anyone:cdrwa)")
}

// acls are those that -acl says, or its default.
func (f *clientFlags) acls() ([]zk.ACL, error) {
	if f.acl != "" {
		return parseACL(f.acl)
	}
	id, ok, err := f.identity()
	if err != nil || !ok || !id.Proves() {
		return zk.WorldACL(zk.PermAll), err
	}
	return recipes.CreatorACL(), nil
}

// digestScheme is the scheme of an identity that does not name one.
const digestScheme = "digest"

// authSchemes are the schemes that may precede a secret. Another one would be read as the name of a
// user.
var authSchemes = []string{digestScheme, "key", "ensemble", "ip", "sasl", "x509"}

// parseAuth reads scheme:secret, or user:password for digest.
func parseAuth(text string) (recipes.Auth, error) {
	first, rest, found := strings.Cut(text, ":")
	if !found || first == "" {
		return recipes.Auth{}, errors.New("must be user:password, or scheme:secret")
	}
	scheme, secret := digestScheme, text
	if slices.Contains(authSchemes, first) {
		scheme, secret = first, rest
	}
	if (scheme == digestScheme || scheme == recipes.SASL) && !strings.Contains(secret, ":") {
		return recipes.Auth{}, errors.New("must be user:password, or scheme:secret")
	}
	return recipes.Auth{Scheme: scheme, Secret: []byte(secret)}, nil
}

// identity is the identity of the command: -auth, or the first line of -auth-file, or the
// environment variable. ok is false without any. Errors do not contain the secret.
func (f *clientFlags) identity() (id recipes.Auth, ok bool, err error) {
	text, from := f.auth, "-auth"
	switch {
	case f.auth != "" && f.authFile != "":
		return id, false, errors.New("-auth and -auth-file: one of them, please")
	case f.auth != "":
	case f.authFile != "":
		from = "-auth-file"
		b, err := os.ReadFile(f.authFile)
		if err != nil {
			return id, false, fmt.Errorf("-auth-file: %w", err)
		}
		text, _, _ = strings.Cut(string(b), "\n")
		text = strings.TrimSuffix(text, "\r")
	default:
		if text, from = f.e.variables[authVariable], "$"+authVariable; text == "" {
			return id, false, nil
		}
	}
	if id, err = parseAuth(text); err != nil {
		return id, false, fmt.Errorf("%s: %w", from, err)
	}
	return id, true, nil
}

// warnOfReadableFile writes a warning if every user of this machine can read the identity.
func (f *clientFlags) warnOfReadableFile() {
	if f.authFile == "" {
		return
	}
	if info, err := os.Stat(f.authFile); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		f.say("readable identity", fmt.Sprintf(
			"-auth-file: every user of this machine can read %s (mode %04o): chmod 600 %[1]s", f.authFile,
			info.Mode().Perm()))
	}
}

// say writes a message: as text, or with -json the event with the message, the path of the lock and
// more fields, which are names and values in turn. Both go to standard error, as standard output
// may belong to another command.
func (f *clientFlags) say(event, text string, fields ...any) {
	if !f.json {
		fmt.Fprintf(f.e.stderr, "lockkeeper %s: %s\n", f.command, text)
		return
	}
	record := map[string]any{"event": event, "message": text, "time": time.Now().UTC().Format(time.RFC3339Nano)}
	if f.path != "" {
		record["lock"] = f.path
	}
	for pair := range slices.Chunk(fields, 2) {
		record[pair[0].(string)] = pair[1]
	}
	_ = json.NewEncoder(f.e.stderr).Encode(record) // it fails for a year beyond 9999, at most
}

// tell is say for messages about success; it prints only if verbose or -json is set.
func (f *clientFlags) tell(event, text string, fields ...any) {
	if f.verbose || f.json {
		f.say(event, text, fields...)
	}
}

// fail writes why the command has failed, and returns the exit status.
func (f *clientFlags) fail(status exitStatus, err error) error {
	f.say("failed", err.Error())
	return status
}

// clientLog is a slog.Handler that writes the warnings of package recipes as messages of the
// command.
type clientLog struct {
	*clientFlags
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (l *clientLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (l *clientLog) Handle(_ context.Context, r slog.Record) error {
	text, fields := r.Message, []any{}
	add := func(a slog.Attr) bool {
		text += fmt.Sprintf("  %s=%q", a.Key, a.Value)
		fields = append(fields, a.Key, a.Value.String())
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	l.say("warning", text, fields...)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *clientLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &clientLog{l.clientFlags, slices.Concat(l.attrs, attrs)}
}

// WithGroup implements slog.Handler. It changes nothing: no key is used twice.
func (l *clientLog) WithGroup(string) slog.Handler { return l }

// client is a connection to the cluster.
type client struct {
	*recipes.Session
	flags   *clientFlags
	servers []string
}

// connect begins to connect, with the config completed from the flags. It does not wait.
func (f *clientFlags) connect(config recipes.Config) (*client, error) {
	if err := f.resolve(); err != nil {
		return nil, err
	}
	servers, err := serverList(f.servers)
	if err != nil {
		return nil, err
	}
	config.Servers, config.SessionTimeout = servers, f.session
	if id, ok, err := f.identity(); err != nil {
		return nil, err
	} else if ok {
		config.Auth = []recipes.Auth{id}
	}
	if config.ACL, err = f.acls(); err != nil {
		return nil, err
	}
	if config.TLS, err = f.tls.config(); err != nil {
		return nil, err
	}
	s, err := recipes.Connect(config)
	if err != nil {
		return nil, err
	}
	return &client{Session: s, flags: f, servers: servers}, nil
}

func (c *client) connected() bool {
	return c.Conn().State() == zk.StateHasSession
}

// reach waits for the cluster, and returns at once if nothing listens at any address. With patience
// it writes a message instead, and the requests of the caller wait.
func (f *clientFlags) reach(ctx context.Context, c *client, patience bool) error {
	err := c.Reach(ctx)
	switch {
	case patience && errors.Is(err, recipes.ErrUnreachable):
		f.say("unreachable", c.unreachable()+"; still trying")
		return nil
	case errors.Is(err, recipes.ErrUnreachable):
		text := unreachableText(c.where(), err)
		if hintOf(err) == "" {
			text += " ('lockkeeper serve' starts a member; -servers names others)"
		}
		return errors.New(text)
	case errors.Is(err, recipes.ErrLoginRequired):
		return loginRequired()
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New(c.unreachable())
	}
	return err
}

// unreachable formats that no member is reachable, and why as far as that is known.
func (c *client) unreachable() string {
	over, cancel := context.WithCancel(context.Background())
	cancel() // Reach returns at once
	err := c.Reach(over)
	switch {
	case errors.Is(err, recipes.ErrLoginRequired):
		return loginRequired().Error()
	case errors.Is(err, recipes.ErrUnreachable):
		return unreachableText(c.where(), err)
	}
	return unreachableText(c.where(), nil) + ": a server was reached, but it serves nobody: it may have no leader, " +
		"or the port may not be for clients " +
		"('lockkeeper status' tells more)"
}

// where is the servers, with the name of the context that names them.
func (c *client) where() string {
	where := strings.Join(c.servers, ", ")
	if c.flags.from.Name != "" {
		where += " (context " + c.flags.from.Name + ")"
	}
	return where
}

// unreachableText formats that no server is reachable, the cause, and a hint.
func unreachableText(where string, err error) string {
	text := "cannot reach the cluster at " + where
	if err != nil {
		text += strings.ReplaceAll(strings.TrimPrefix(err.Error(), recipes.ErrUnreachable.Error()), "recipes: ", "")
	}
	return text + hintOf(err)
}

// hintOf is which flag may help against the error; empty if none is known.
func hintOf(err error) string {
	switch {
	case errors.Is(err, recipes.ErrTLSNeeded):
		return " (-tls-ca FILE connects with TLS; FILE has the authorities whose servers are trusted)"
	case errors.Is(err, recipes.ErrNoTLS):
		return " (without -tls-ca and $" + caVariable + " the connection has no TLS; secureClientPort is the port " +
			"that has)"
	case errors.Is(err, recipes.ErrCertificateNeeded):
		return " (-tls-cert FILE is the certificate of this program)"
	case errors.Is(err, recipes.ErrHTTP):
		return " (-servers names clientPort or secureClientPort)"
	}
	return ""
}

// loginRequired waits for a moment until the session has ended, and returns the error if it has
// because the server requires a login. It is for requests that lost their answer.
func (c *client) loginRequired() error {
	const patience, pause = 200 * time.Millisecond, 10 * time.Millisecond
	over, cancel := context.WithCancel(context.Background())
	cancel() // Reach returns at once
	for began := time.Now(); time.Since(began) < patience; time.Sleep(pause) {
		if err := c.Reach(over); errors.Is(err, recipes.ErrClosed) {
			if errors.Is(err, recipes.ErrLoginRequired) {
				return err
			}
			return nil
		}
	}
	return nil
}

// loginRequired formats that a server serves nobody who has not logged in.
func loginRequired() error {
	return fmt.Errorf("the server requires a login, with SASL or a certificate (-auth-file, -auth or $%s: "+
		"sasl:USER:PASSWORD)", authVariable)
}

// tlsFlags are the flags of every command that can connect with TLS.
type tlsFlags struct{ ca, cert, key string }

// Environment variables, which count where a flag is not given.
const (
	caVariable   = "LOCKKEEPER_TLS_CA"
	certVariable = "LOCKKEEPER_TLS_CERT"
	keyVariable  = "LOCKKEEPER_TLS_KEY"
)

func (f *tlsFlags) flags(fs *flag.FlagSet, e env) {
	fs.StringVar(&f.ca, "tls-ca", e.variables[caVariable],
		"`file` connect with TLS, to servers of these certificate authorities, in PEM (default $LOCKKEEPER_TLS_CA)")
	fs.StringVar(&f.cert, "tls-cert", e.variables[certVariable],
		"`file` the certificate of this program for TLS, in PEM (default $LOCKKEEPER_TLS_CERT)")
	fs.StringVar(&f.key, "tls-key", e.variables[keyVariable],
		"`file` the private key of that certificate, in PEM (default $LOCKKEEPER_TLS_KEY, or the same file)")
}

// complete takes the files of a context, unless flags or variables name any.
func (f *tlsFlags) complete(c *contexts.Context) {
	if *f == (tlsFlags{}) {
		*f = tlsFlags{c.Get(contexts.CA), c.Get(contexts.Cert), c.Get(contexts.Key)}
	}
}

// config is nil without TLS. The name of the server is left open.
func (f *tlsFlags) config() (*tls.Config, error) {
	switch {
	case f.ca == "" && (f.cert != "" || f.key != ""):
		return nil, errors.New("-tls-cert and -tls-key need -tls-ca, the authorities whose servers are trusted")
	case f.ca == "":
		return nil, nil
	case f.cert == "" && f.key != "":
		return nil, errors.New("-tls-key needs -tls-cert")
	}
	keeper, err := secure.Open(secure.Settings{
		KeyStore: secure.Store{File: f.cert, KeyFile: f.key, Type: secure.PEM, Key: "-tls-cert",
			KeyFileKey: "-tls-key"},
		TrustStore: secure.Store{File: f.ca, Type: secure.PEM, Key: "-tls-ca"},
	})
	if err != nil {
		return nil, err
	}
	return keeper.Client(""), nil
}

// dial connects to a server, with TLS if the flags say so.
func (f *tlsFlags) dial(ctx context.Context, server string) (net.Conn, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	if config == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", server)
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", server)
}

// defaultContext is the name of the default servers, which no file has.
const defaultContext = "default"

// contextCommand is context. Its flags are the values of a new context.
type contextCommand struct {
	e      env
	values map[string]*string // by key
}

func (c *contextCommand) flags(fs *flag.FlagSet, e env) {
	c.e, c.values = e, map[string]*string{}
	for _, key := range [][2]string{
		{contexts.Servers, "`host:port,...` the members of the cluster"},
		{contexts.HTTP, "`host:port` where a member serves HTTP; https://host:port with TLS"},
		{contexts.CA, "`file` connect with TLS, to servers of these certificate authorities, in PEM"},
		{contexts.Cert, "`file` the certificate of the commands for TLS, in PEM"},
		{contexts.Key, "`file` its private key, in PEM (default: the same file)"},
		{contexts.AuthFile, "`file` with the identity of the commands in its first line: user:password, scheme:secret"},
	} {
		c.values[key[0]] = fs.String(key[0], "", key[1]+"; for add")
	}
}

func (c *contextCommand) run(e env, args []string) error {
	f, err := e.contexts()
	switch {
	case err != nil:
		return err
	case len(args) == 0 || args[0] == "list" && len(args) == 1:
		return c.list(f)
	case f.Path == "":
		return errors.New("there is no directory for the configuration of a user: $HOME is not set")
	case len(args) != 2:
		return wrongUsage("say one of list, use NAME, add NAME and remove NAME")
	}
	name := args[1]
	switch args[0] {
	case "use":
		if name == defaultContext {
			return f.Use("")
		}
		return f.Use(name)
	case "add":
		return c.add(f, name)
	case "remove":
		return f.Remove(name)
	}
	return wrongUsage("%q is none of list, use, add and remove", args[0])
}

// add adds a context. Names of files become absolute: they are those of the working directory.
func (c *contextCommand) add(f *contexts.File, name string) error {
	if name == defaultContext {
		return wrongUsage("%s is the name of %s", defaultContext, defaultServers)
	}
	values := map[string]string{}
	for key, text := range c.values {
		values[key] = *text
	}
	if _, err := serverList(values[contexts.Servers]); err != nil {
		return usageError{err}
	}
	for _, key := range []string{contexts.CA, contexts.Cert, contexts.Key, contexts.AuthFile} {
		if values[key] == "" {
			continue
		}
		file, err := filepath.Abs(values[key])
		if err == nil {
			_, err = os.Stat(file)
		}
		if err != nil {
			return usageError{fmt.Errorf("-%s: %w", key, err)}
		}
		values[key] = file
	}
	if err := f.Add(name, values); err != nil {
		return err
	}
	fmt.Fprintf(c.e.stdout, "added to %s; 'lockkeeper context use %s' has the commands use it\n", f.Path, name)
	return nil
}

// list shows the contexts, the current one with a star.
func (c *contextCommand) list(f *contexts.File) error {
	show := func(name, servers string) {
		mark := " "
		if name == cmp.Or(f.Current, defaultContext) {
			mark = "*"
		}
		fmt.Fprintf(c.e.stdout, "%s %-16s %s\n", mark, name, servers)
	}
	show(defaultContext, defaultServers)
	for i := range f.Contexts {
		show(f.Contexts[i].Name, f.Contexts[i].Get(contexts.Servers))
	}
	if servers := c.e.variables[serversVariable]; servers != "" {
		fmt.Fprintf(c.e.stdout, "$%s comes before the current context: %s\n", serversVariable, servers)
	}
	return nil
}
