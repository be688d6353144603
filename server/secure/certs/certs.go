package certs

import (
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Names of files.
const (
	authorityDir  = "authority"
	authorityKey  = "ca.key"
	AuthorityFile = "ca.pem"
	PairFile      = "tls.pem"
	SecretFile    = "peer.secret"
)

// Usual validities. Java and browsers take a certificate of any length from a private authority;
// people renew yearly ones in time.
const (
	DefaultValidity          = 365 * 24 * time.Hour
	DefaultAuthorityValidity = 3650 * 24 * time.Hour
)

const (
	privateDir, privateFile, publicFile fs.FileMode = 0o700, 0o600, 0o644

	secretBytes = 32
)

// Dir is a directory as package certs keeps it.
type Dir struct {
	Path string
	// Validity is how long new certificates are valid, AuthorityValidity how long a new authority
	// is; zero means DefaultValidity and DefaultAuthorityValidity.
	Validity, AuthorityValidity time.Duration
	// Now is the time; nil means time.Now.
	Now func() time.Time
}

// A Request asks for a certificate.
type Request struct {
	// Name is the name of the holder and of its directory; its subject is CN=NAME.
	Name string
	// Hosts are the names and addresses at which a member is reached. A client has none: a
	// certificate without them is no member's.
	Hosts []string
	// Member says that the holder accepts connections, and gets the secret of the cluster.
	Member bool
}

// A Holder is a member or a client that has a certificate.
type Holder struct {
	Request
	Dir     string // where its files are
	Expires time.Time
	Issuer  string // the name of the authority

	cert *x509.Certificate
}

// An Authority is an authority that members and clients trust.
type Authority struct {
	Name    string
	Expires time.Time
}

func (d *Dir) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}

func (d *Dir) at(parts ...string) string { return filepath.Join(append([]string{d.Path}, parts...)...) }

// Exists reports whether there is an authority in the directory.
func (d *Dir) Exists() bool {
	_, err := os.Lstat(d.at(authorityDir))
	return err == nil
}

// Init makes the directory, with an authority of that name.
func (d *Dir) Init(name string) error {
	if d.Exists() {
		return fmt.Errorf("certs: %s has an authority already", d.Path)
	}
	made, err := d.newIssuer(name)
	if err != nil {
		return err
	}
	for _, dir := range []string{d.Path, d.at(authorityDir)} {
		if err := os.MkdirAll(dir, privateDir); err != nil {
			return fmt.Errorf("certs: %w", err)
		}
	}
	return d.saveAuthorities(made, nil)
}

// saveAuthorities writes the key of the newest authority, and the certificates of all. Order: an
// authority is trusted before its key is there, so that an end of the process in between leaves the
// authority before in office.
func (d *Dir) saveAuthorities(newest *issuer, older []byte) error {
	if err := writeFile(d.at(authorityDir, AuthorityFile), append(newest.pem(), older...), publicFile); err != nil {
		return err
	}
	return writeFile(d.at(authorityDir, authorityKey), append(newest.keyPEM, newest.pem()...), privateFile)
}

// holderName matches valid names: a holder's name is the name of a directory, and of a user in
// ACLs.
var holderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

func (r Request) check() error {
	switch {
	case !holderName.MatchString(r.Name) || r.Name == authorityDir:
		return fmt.Errorf("certs: %q cannot be the name of a holder: letters, digits and . _ @ - can", r.Name)
	case r.Member && len(r.Hosts) == 0:
		return fmt.Errorf("certs: %s has no host", r.Name)
	}
	for _, host := range r.Hosts {
		if net.ParseIP(host) == nil && !hostName.MatchString(host) {
			return fmt.Errorf("certs: %s: %q is neither the name of a host nor an address", r.Name, host)
		}
	}
	return nil
}

var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?` +
	`(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`)

// Issue makes certificates. It makes none if one of the holders exists.
func (d *Dir) Issue(requests ...Request) (made []Holder, err error) {
	ca, err := d.issuer()
	if err != nil {
		return nil, err
	}
	for i, r := range requests {
		if err := r.check(); err != nil {
			return nil, err
		}
		_, err := os.Lstat(d.at(r.Name))
		if err == nil || slices.ContainsFunc(requests[:i], func(o Request) bool { return o.Name == r.Name }) {
			return nil, fmt.Errorf("certs: %s exists: nothing is overwritten ('renew' replaces its certificate)",
				d.at(r.Name))
		}
	}
	for _, r := range requests {
		h, err := d.issue(ca, r)
		if err != nil {
			return made, err
		}
		made = append(made, h)
	}
	return made, nil
}

// issue makes the directory of a holder, or replaces its files.
func (d *Dir) issue(ca *issuer, r Request) (Holder, error) {
	pair, cert, err := ca.issue(r, d.now(), cmp.Or(d.Validity, DefaultValidity))
	if err != nil {
		return Holder{}, err
	}
	trusted, err := os.ReadFile(d.at(authorityDir, AuthorityFile))
	if err == nil {
		err = os.MkdirAll(d.at(r.Name), privateDir)
	}
	if err != nil {
		return Holder{}, fmt.Errorf("certs: %w", err)
	}
	// Order: a member that reads in between trusts the issuer before it shows the certificate.
	if err := writeFile(d.at(r.Name, AuthorityFile), trusted, publicFile); err != nil {
		return Holder{}, err
	}
	if err := writeFile(d.at(r.Name, PairFile), pair, privateFile); err != nil {
		return Holder{}, err
	}
	if r.Member {
		if err := d.giveSecret(r.Name); err != nil {
			return Holder{}, err
		}
	}
	return Holder{Request: r, Dir: d.at(r.Name), Expires: cert.NotAfter, Issuer: commonName(cert.Issuer), cert: cert},
		nil
}

// giveSecret writes the secret of the cluster for a member: another member's, or a new one. A
// secret that the member has stays.
func (d *Dir) giveSecret(name string) error {
	if _, err := os.Lstat(d.at(name, SecretFile)); err == nil {
		return nil
	}
	text, err := d.secret()
	if err != nil {
		return err
	}
	return writeFile(d.at(name, SecretFile), text, privateFile)
}

func (d *Dir) secret() ([]byte, error) {
	found, err := filepath.Glob(d.at("*", SecretFile))
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	if len(found) > 0 {
		text, err := os.ReadFile(found[0])
		if err != nil {
			return nil, fmt.Errorf("certs: %w", err)
		}
		return text, nil
	}
	var random [secretBytes]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	return []byte(hex.EncodeToString(random[:]) + "\n"), nil
}

// Renew issues certificates anew, with new keys: of these holders, or of all. The files of others
// stay, and so do the secrets.
func (d *Dir) Renew(names ...string) (made []Holder, err error) {
	ca, err := d.issuer()
	if err != nil {
		return nil, err
	}
	_, holders, err := d.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(holders, func(h Holder) bool { return h.Name == name }) {
			return nil, fmt.Errorf("certs: %s has no certificate of %q", d.Path, name)
		}
	}
	for _, h := range holders {
		if len(names) > 0 && !slices.Contains(names, h.Name) {
			continue
		}
		renewed, err := d.issue(ca, h.Request)
		if err != nil {
			return made, err
		}
		made = append(made, renewed)
	}
	return made, nil
}

// Rotate makes a new authority, which issues all certificates from now on, and has all holders
// trust it beside those before.
func (d *Dir) Rotate(name string) error {
	older, err := os.ReadFile(d.at(authorityDir, AuthorityFile))
	if err != nil {
		return fmt.Errorf("certs: %w", err)
	}
	authorities, _, err := d.List()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(authorities, func(a Authority) bool { return a.Name == name }) {
		return fmt.Errorf("certs: there is an authority %q already: clients tell authorities apart by their names",
			name)
	}
	made, err := d.newIssuer(name)
	if err != nil {
		return err
	}
	if err := d.saveAuthorities(made, older); err != nil {
		return err
	}
	return d.distribute()
}

// Retire has all holders trust the newest authority only. It refuses while one of them has a
// certificate of an older one.
func (d *Dir) Retire() error {
	ca, err := d.issuer()
	if err != nil {
		return err
	}
	authorities, holders, err := d.List()
	if err != nil {
		return err
	}
	if len(authorities) < 2 {
		return errors.New("certs: there is no older authority")
	}
	var old []string
	for _, h := range holders {
		if h.cert.CheckSignatureFrom(ca.cert) != nil {
			old = append(old, h.Name)
		}
	}
	if len(old) > 0 {
		return fmt.Errorf("certs: certificates of an older authority would not be trusted any more: renew %s first",
			strings.Join(old, ", "))
	}
	if err := writeFile(d.at(authorityDir, AuthorityFile), ca.pem(), publicFile); err != nil {
		return err
	}
	return d.distribute()
}

// distribute copies the certificates of the authorities to all holders.
func (d *Dir) distribute() error {
	trusted, err := os.ReadFile(d.at(authorityDir, AuthorityFile))
	if err != nil {
		return fmt.Errorf("certs: %w", err)
	}
	_, holders, err := d.List()
	if err != nil {
		return err
	}
	for _, h := range holders {
		if err := writeFile(filepath.Join(h.Dir, AuthorityFile), trusted, publicFile); err != nil {
			return err
		}
	}
	return nil
}

// List returns the authorities, the newest first, and the holders in the order of their names.
func (d *Dir) List() (authorities []Authority, holders []Holder, err error) {
	trusted, err := d.trusted()
	if err != nil {
		return nil, nil, err
	}
	for _, cert := range trusted {
		authorities = append(authorities, Authority{commonName(cert.Subject), cert.NotAfter})
	}
	pairs, err := filepath.Glob(d.at("*", PairFile))
	if err != nil {
		return nil, nil, fmt.Errorf("certs: %w", err)
	}
	for _, file := range pairs {
		h, err := readHolder(file)
		if err != nil {
			return nil, nil, err
		}
		holders = append(holders, h)
	}
	return authorities, holders, nil
}

// writeFile writes a file of that mode: it is there as a whole, or not at all.
func writeFile(name string, text []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("certs: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("certs: write %s: %w", name, err)
		}
	}()
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
