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
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/wire"
)

// secured are attacks on TLS.
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
	}
}

// certificate makes a certificate that it signs itself, for a year, and returns the lines of a
// zoo.cfg with which the client port speaks TLS as well as before.
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
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return []string{"client.portUnification=true", "ssl.clientAuth=none", "tls.cert=" + certFile, "tls.key=" + keyFile}, err
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
	flooding, end := context.WithCancel(context.Background())
	flooded := make(chan error, 1)
	go func() {
		flooded <- each(4, func(i int) error {
			return rounds(flooding, func() error {
				c, err := p.dial(p.attacked.ClientAddr, p.host(i))
				if err != nil {
					p.saw(refused)
					return nil
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				if err = tls.Client(c, trusting).Handshake(); err == nil || errors.Is(err, io.EOF) || isEnd(err) {
					p.saw(outcome(err))
				} else {
					p.saw(err.Error())
				}
				return c.Close()
			})
		})
	}()
	err := p.connectSecurely(ctx)
	end()
	return errors.Join(err, <-flooded)
}

// secureP99 is what a new session over TLS may take, at the 99th percentile.
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
