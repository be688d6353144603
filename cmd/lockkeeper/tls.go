package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"net"
	"os"

	"lockkeeper/server/secure"
)

// tlsFlags are the flags of every command that can connect with TLS.
type tlsFlags struct{ ca, cert, key string }

// Environment variables, which count where a flag is not given.
const (
	caVariable   = "LOCKKEEPER_TLS_CA"
	certVariable = "LOCKKEEPER_TLS_CERT"
	keyVariable  = "LOCKKEEPER_TLS_KEY"
)

func (f *tlsFlags) flags(fs *flag.FlagSet) {
	fs.StringVar(&f.ca, "tls-ca", "",
		"`file` connect with TLS, to servers of these certificate authorities, in PEM (default $LOCKKEEPER_TLS_CA)")
	fs.StringVar(&f.cert, "tls-cert", "",
		"`file` the certificate of this program for TLS, in PEM (default $LOCKKEEPER_TLS_CERT)")
	fs.StringVar(&f.key, "tls-key", "",
		"`file` the private key of that certificate, in PEM (default $LOCKKEEPER_TLS_KEY, or the same file)")
}

// config is nil without TLS. The name of the server is left open.
func (f *tlsFlags) config() (*tls.Config, error) {
	ca, cert := cmp.Or(f.ca, os.Getenv(caVariable)), cmp.Or(f.cert, os.Getenv(certVariable))
	key := cmp.Or(f.key, os.Getenv(keyVariable))
	switch {
	case ca == "" && (cert != "" || key != ""):
		return nil, errors.New("-tls-cert and -tls-key need -tls-ca, the authorities whose servers are trusted")
	case ca == "":
		return nil, nil
	case cert == "" && key != "":
		return nil, errors.New("-tls-key needs -tls-cert")
	}
	keeper, err := secure.Open(secure.Settings{
		KeyStore:   secure.Store{File: cert, KeyFile: key, Type: secure.PEM, Key: "-tls-cert", KeyFileKey: "-tls-key"},
		TrustStore: secure.Store{File: ca, Type: secure.PEM, Key: "-tls-ca"},
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
