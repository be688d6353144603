package recipes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// selfSigned makes a certificate for localhost, by that name only: the addresses
// that it resolves to are not in it. The key and the certificate are PEM, one
// after the other.
func selfSigned() (both []byte, roots *x509.CertPool, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	b.Write(certPEM)
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return b.Bytes(), roots, nil
}

// tlsProxy is a port for TLS in front of a server without. It returns the port.
func tlsProxy(t *testing.T, backend string, both []byte) int {
	cert, err := tls.X509KeyPair(both, both)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "localhost:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", backend)
			if err != nil {
				client.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() {
					io.Copy(pair[1], pair[0])
					pair[1].Close()
				}()
			}
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// TestLiveTLSAndAuth takes a lock over TLS, with an identity that alone may read
// the lock's node.
func TestLiveTLSAndAuth(t *testing.T) {
	both, roots, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("proxy", func(t *testing.T) {
		eachServer(t, func(t *testing.T, addr string) {
			lockOverTLS(t, addr, tlsProxy(t, addr, both), roots)
		})
	})
	// ZooKeeper's own port for TLS, which its Netty connections have.
	t.Run("secureClientPort", func(t *testing.T) {
		goOnly(t)
		t.Parallel()
		var port int
		s := &server{name: "zookeeper-tls", missing: zookeeperMissing, command: func(config string) ([]string, error) {
			args, err := zookeeperCommand(config)
			at := slices.Index(args, "-cp")
			// which zookeeper.jar does not name
			for _, jar := range []string{"netty-codec.jar", "netty-resolver.jar"} {
				args[at+1] += ":" + filepath.Join(javaDir, jar)
			}
			return slices.Insert(args, at, "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"), err
		}, settings: func(dir string) (text string, err error) {
			file := filepath.Join(dir, "both.pem")
			if port, err = freePort(); err == nil {
				err = os.WriteFile(file, both, 0o600)
			}
			return fmt.Sprintf("secureClientPort=%d\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=%s\nssl.keyStore.type=PEM\n"+
				"ssl.trustStore.location=%[2]s\nssl.trustStore.type=PEM\nssl.clientAuth=none\n", port, file), err
		}}
		t.Cleanup(func() { s.stop(t.Failed()) })
		addr, err := s.start()
		switch {
		case errors.Is(err, errMissing) && os.Getenv("CI") == "":
			t.Skip(err)
		case err != nil:
			t.Fatal(err)
		}
		lockOverTLS(t, addr, port, roots)
	})
}

func lockOverTLS(t *testing.T, plain string, port int, roots *x509.CertPool) {
	// The directories that are made on the way have the ACL, too, so that no other test may use
	// them.
	ctx, path := limit(t, time.Minute), "/secured"+livePath(t)
	secure := Config{
		// By its name: the certificate is not for the address that it resolves to.
		Servers:        []string{fmt.Sprintf("localhost:%d", port)},
		SessionTimeout: liveTimeout,
		TLS:            &tls.Config{RootCAs: roots},
		Auth:           []Auth{{"digest", []byte("me:pw")}},
	}
	s, err := Connect(secure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	g, err := NewMutex(s, path, MutexOptions{ACL: zk.DigestACL(zk.PermAll, "me", "pw")}).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Conn().Get(g.Node()); err != nil {
		t.Errorf("the owner reads its node: %v", err)
	}
	if _, _, err := live(t, plain, liveTimeout).Conn().Get(g.Node()); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("another reads it: %v, want ErrNoAuth", err)
	}
	if err := g.Unlock(ctx); err != nil {
		t.Error(err)
	}

	secure.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	stranger, err := Connect(secure)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	short, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var unknown x509.UnknownAuthorityError
	if err := stranger.Reach(short); !errors.Is(err, ErrUnreachable) || !errors.As(err, &unknown) {
		t.Errorf("with a certificate that nobody vouches for: Reach = %v", err)
	}
}
