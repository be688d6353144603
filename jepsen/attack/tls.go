package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/session/sasl"
	"lockkeeper/wire"
)

// secured are attacks on TLS and on logins.
func secured() []Attack {
	return []Attack{
		{
			Name: "tls-silence", Port: ClientPort, Certificate: true,
			Sends: "1,200 TLS handshakes from 20 addresses that begin and never go on, while somebody connects with TLS",
			May:   []string{held, closed, refused}, Least: 1200, LeastBytes: 5000,
			play: silentHandshakes,
		},
		{
			Name: "tls-handshakes", Port: ClientPort, Certificate: true,
			Sends: "TLS handshakes as fast as they are taken, over four connections at a time, while somebody connects with TLS",
			May:   []string{ok, closed, refused}, Least: 50, LeastBytes: 10_000,
			play: handshakes,
		},
		{
			Name: "tls-certificates", Port: ClientPort, Certificate: true,
			Sends: "TLS handshakes with certificates of 250 kB, over ten connections at a time, while somebody connects with TLS",
			May:   []string{closed, refused}, Least: 20, LeastBytes: 1_000_000,
			play: longHandshakes,
		},
		{
			Name: "logins", Port: ClientPort, Certificate: true,
			Sends: "guesses of the super user's password, and of a SASL user's, over ten connections at a time, while somebody connects with TLS",
			May:   []string{ok, closed, refused, "AuthFailed"}, Least: 50, LeastBytes: 10_000,
			play: guesses,
		},
	}
}

// certificate makes a certificate that it signs itself, for a year, and a SASL user. It returns the
// lines of a zoo.cfg with which the client port speaks TLS as well as before, and has that user.
func certificate(dir string) ([]string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	user, err := sasl.Entry("bob", rand.Text())
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	certFile, keyFile, users := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "users")
	err = errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(users, []byte(user+"\n"), 0o600))
	return []string{"client.portUnification=true", "ssl.clientAuth=want", "tls.cert=" + certFile, "tls.key=" + keyFile,
		"tls.ca=" + certFile, "saslUsersFile=" + users}, err
}

// trusting takes any certificate: the attack is not about who the member is.
var trusting = &tls.Config{InsecureSkipVerify: true}

func silentHandshakes(ctx context.Context, p *Play) error {
	hello := []byte{22, 3, 1, 2, 0, 1} // a record of 512 bytes with the beginning of a ClientHello
	conns := p.openMany(1200, func(i int) (net.Conn, error) {
		c, err := p.dial(p.attacked.ClientAddr, p.host(i%20))
		if err == nil {
			_, _ = c.Write(hello)
		}
		return c, err
	})
	err := p.connectSecurely(ctx)
	p.hold(ctx, conns)
	return err
}

func handshakes(ctx context.Context, p *Play) error {
	return p.whileConnecting(ctx, 4, func(c net.Conn) {
		if err := tls.Client(c, trusting).Handshake(); err == nil || isEnd(err) {
			p.saw(outcome(err))
		} else {
			p.saw(err.Error())
		}
	})
}

func longHandshakes(ctx context.Context, p *Play) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("attack: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{strings.Repeat("a", 40_000)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("attack: %w", err)
	}
	long := trusting.Clone()
	shown := &tls.Certificate{Certificate: slices.Repeat([][]byte{cert}, 6), PrivateKey: key}
	long.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
	return p.whileConnecting(ctx, 10, func(c net.Conn) {
		secured := tls.Client(c, long)
		err := secured.Handshake()
		if err == nil { // by TLS 1.3 the client is done before the server has read its certificates
			_, err = secured.Read(make([]byte, 1))
		}
		if err == nil {
			p.saw(ok)
			return
		}
		p.saw(closed)
	})
}

// guesses tries passwords: with auth packets until there are too many identities, and with SASL.
func guesses(ctx context.Context, p *Play) error {
	return p.whileConnecting(ctx, 10, func(nc net.Conn) {
		c := &client{zkconn.New(nc)}
		_, err := c.Handshake(wire.ConnectRequest{TimeoutMs: sessionTimeoutMs, Password: make([]byte, wire.PasswordLen)})
		for i := 0; err == nil && i < 200; i++ {
			err = c.do(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: fmt.Appendf(nil, "super:%s%d", rand.Text(), i)})
			p.saw(outcome(err))
			if i == 20 { // the second token ends the connection
				err = c.do(wire.OpSASL, wire.SASLRequest{Token: []byte{}})
			}
			if i == 21 && rand.Text() < "M" {
				err = c.do(wire.OpSASL, wire.SASLRequest{Token: fmt.Appendf(nil, `username="bob",realm=%q,nonce="a",cnonce="b",response="c"`, sasl.Realm)})
				p.saw(outcome(err))
			}
		}
	})
}

// whileConnecting has n goroutines open one connection after the other, while somebody else opens
// sessions over TLS. Use uses a connection, which is closed afterwards.
func (p *Play) whileConnecting(ctx context.Context, n int, use func(c net.Conn)) error {
	flooding, end := context.WithCancel(context.Background())
	flooded := make(chan error, 1)
	go func() {
		flooded <- each(n, func(i int) error {
			return rounds(flooding, func() error {
				c, err := p.dial(p.attacked.ClientAddr, p.host(i))
				if err != nil {
					p.saw(refused)
					return nil
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				use(c)
				return c.Close()
			})
		})
	}()
	err := p.connectSecurely(ctx)
	end()
	return errors.Join(err, <-flooded)
}

// secureP99 bounds the time of a new session over TLS, at the 99th percentile.
const secureP99 = time.Second

// connectSecurely opens sessions over TLS, from an address of its own, until ctx ends, and 20 at
// the least. The error is a harm.
func (p *Play) connectSecurely(ctx context.Context) error {
	var took []time.Duration
	var failed error
	for len(took) < 20 || ctx.Err() == nil {
		began := time.Now()
		failed = errors.Join(failed, p.sessionOverTLS())
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; failed != nil || p99 > secureP99 {
		return &harm{fmt.Sprintf("a session over TLS took %d ms (p99 of %d)", p99.Milliseconds(), len(took)), failed}
	}
	return nil
}

func (p *Play) sessionOverTLS() error {
	nc, err := p.dial(p.attacked.ClientAddr, p.host(1000))
	if err != nil {
		return err
	}
	c := &client{zkconn.New(tls.Client(nc, trusting))}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err = c.Handshake(wire.ConnectRequest{TimeoutMs: sessionTimeoutMs, Password: make([]byte, wire.PasswordLen)})
	if err == nil {
		err = c.do(wire.OpCloseSession, nil)
	}
	return err
}
