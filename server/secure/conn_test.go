package secure

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"testing"
	"time"

	"lockkeeper/internal/testcert"
)

// script is a connection on which these bytes arrive.
type script struct {
	net.Conn
	in *bytes.Reader
}

func (s *script) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return len(b), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() (a net.Addr)         { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// FuzzFirstByte: whatever arrives at a port for both, the bytes of a client without TLS arrive as
// they were sent, and no handshake is fooled.
func FuzzFirstByte(f *testing.F) {
	ca := testcert.NewCA(f, "authority")
	pair := ca.Issue(f, testcert.Request{Hosts: []string{"localhost"}})
	cert, err := tls.X509KeyPair(pair.PEM, pair.KeyPEM)
	if err != nil {
		f.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	f.Add([]byte("ruok"))
	f.Add([]byte{0, 0, 0, 44, 0, 0})
	f.Add([]byte{HandshakeByte, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &Conn{Conn: &script{in: bytes.NewReader(in)}, also: true, config: config}
		if err := c.decide(time.Second, time.Now().Add(time.Minute)); err != nil {
			if len(in) > 0 {
				t.Fatal(err)
			}
			return
		}
		if (c.tls != nil) != (in[0] == HandshakeByte) {
			t.Fatalf("TLS: %v, first byte %x", c.tls != nil, in[0])
		}
		if c.tls != nil {
			if c.handshake(context.Background()) == nil {
				t.Fatal("a handshake without a certificate")
			}
			return
		}
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, in) {
			t.Fatalf("%q, %v, want %q", got, err, in)
		}
	})
}
