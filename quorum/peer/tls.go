package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
)

// TLS says how connections between members are encrypted. Its functions are called for each
// connection, from several goroutines, so that certificates can be replaced.
type TLS struct {
	// Client is the configuration with which a member at that host is dialled. It verifies the
	// certificate of the other end, and its name if VerifyHost is set.
	Client func(host string) *tls.Config
	// Server is the configuration with which connections are accepted. It verifies that a
	// certificate comes from an authority that counts, if Certificates is set.
	Server func() *tls.Config
	// Certificates says that a member that dials has to show a certificate.
	Certificates bool
	// VerifyHost has the certificate of a member that dials be for the host of an address at which
	// this member would look for the member that it says it is. One that this member does not know
	// may have any host.
	VerifyHost bool
	// PlainDial opens connections without TLS, and Plain accepts them, too.
	PlainDial, Plain bool
}

// maxHandshakeBytes bounds what is read of a handshake of TLS: the certificates of the other end
// are the most of it.
const maxHandshakeBytes = 32 << 10

// tlsHandshake is the first byte of a connection with TLS. No preface begins with it.
const tlsHandshake = 0x16

// acceptTLS does the handshake of TLS, if the connection begins with one. C is in, or TLS on it.
// Errors: a rejection, those of the connection.
func (p *Port) acceptTLS(in *inbound) (c net.Conn, err error) {
	first, err := in.peek()
	if err != nil {
		return nil, err
	}
	t := p.cfg.Auth.TLS
	switch {
	case first != tlsHandshake && t != nil && !t.Plain:
		p.unproven.Add(1)
		return nil, rejection("it does not use TLS (sslQuorum)")
	case first != tlsHandshake:
		return in, nil
	case t == nil:
		return nil, rejection("it uses TLS, and this member does not (sslQuorum)")
	}
	in.allowed += maxHandshakeBytes
	secured := tls.Server(in, t.Server())
	if err := secured.Handshake(); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, io.EOF) {
			return nil, err
		}
		p.unproven.Add(1)
		return nil, rejection("TLS: " + err.Error())
	}
	return secured, nil
}

// checkCertificate verifies that the certificate at the other end of an accepted connection is one
// of the member that it says it is. Errors: a rejection.
func (p *Port) checkCertificate(c net.Conn, from MemberID) error {
	secured, ok := c.(*tls.Conn)
	if !ok || !p.cfg.Auth.TLS.Certificates {
		return nil
	}
	if fault := p.certificateFault(secured.ConnectionState().PeerCertificates[0], from); fault != nil {
		p.unproven.Add(1)
		return rejection(fmt.Sprintf("it says it is member %d, and its certificate is not: %v", from, fault))
	}
	return nil
}

// certificateFault says why a certificate is not one of that member; nil if it is. The certificate
// of a member is also the one with which it accepts connections. So one that is good for clients
// only, or is for no host, is not a member's, though the same authority may have issued it.
func (p *Port) certificateFault(cert *x509.Certificate, from MemberID) (fault error) {
	usages := cert.ExtKeyUsage
	anyUsage := len(usages) == 0 && len(cert.UnknownExtKeyUsage) == 0
	if !anyUsage && !slices.Contains(usages, x509.ExtKeyUsageAny) &&
		!slices.Contains(usages, x509.ExtKeyUsageServerAuth) {
		return errors.New("it is for clients only (extended key usage)")
	}
	if !p.cfg.Auth.TLS.VerifyHost {
		return nil
	}
	if len(cert.DNSNames) == 0 && len(cert.IPAddresses) == 0 {
		return errors.New("it is for no host (subject alternative name)")
	}
	for _, addr := range p.roster.addrs(from) {
		host, _, err := net.SplitHostPort(addr)
		if err == nil {
			err = cert.VerifyHostname(host)
		}
		if err == nil {
			return nil
		}
		fault = err
	}
	return fault
}

// dialTLS begins TLS with a member at host. C is raw, or TLS on it.
func (p *Port) dialTLS(raw net.Conn, host string) (c net.Conn, err error) {
	t := p.cfg.Auth.TLS
	if t == nil || t.PlainDial {
		return raw, nil
	}
	secured := tls.Client(raw, t.Client(host))
	if err := secured.Handshake(); err != nil {
		if endsWithoutAlert(err) {
			err = fmt.Errorf("%w: the member may not use TLS (sslQuorum), its log says why it refuses", err)
		}
		p.log.Warn("TLS with "+host, "cannot open an encrypted connection to a member", "host", host, "err", err)
		return nil, fmt.Errorf("peer: TLS with %s: %w", host, err)
	}
	return secured, nil
}

// endsWithoutAlert reports whether the other end has closed a connection in its handshake as a
// member does that does not use TLS.
func endsWithoutAlert(err error) bool {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return plain || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}
