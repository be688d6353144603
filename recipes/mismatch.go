package recipes

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// probeTime is how long a port has to show what it speaks.
const probeTime = time.Second

// Mismatch connects to a port that has served no session, and finds out whether it speaks TLS. The
// error wraps ErrTLSNeeded if it does and config is nil, ErrNoTLS if it does not and config is set,
// or ErrHTTP; it is nil if none of these was found. It connects twice, and each time waits for the
// port for at most so long.
func Mismatch(ctx context.Context, address string, config *tls.Config, patience time.Duration) error {
	return mismatch(address, config, func() (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(patience))
		}
		return conn, err
	})
}

// mismatch is Mismatch, with connections that have a deadline.
func mismatch(address string, config *tls.Config, open func() (net.Conn, error)) error {
	speaksTLS, err := probeTLS(open)
	switch {
	case err != nil:
		return plainAnswer(address, err, nil)
	case config != nil && speaksTLS:
		return nil
	}
	answer := probePlain(open)
	switch {
	case bytes.HasPrefix(answer, []byte("HTTP")):
		return fmt.Errorf("%s: %w", address, ErrHTTP)
	case speaksTLS && len(answer) == 0:
		return fmt.Errorf("%s: %w", address, ErrTLSNeeded)
	case config != nil && len(answer) > 0:
		return fmt.Errorf("%s: %w", address, ErrNoTLS)
	}
	return nil
}

// probeTLS reports whether a port speaks TLS. The error is a tls.RecordHeaderError if it answers
// something else.
func probeTLS(open func() (net.Conn, error)) (bool, error) {
	conn, err := open()
	if err != nil {
		return false, nil
	}
	defer conn.Close()
	// The certificate does not matter: nothing is sent.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return false, err
	}
	return err == nil || isRemoteAlert(err), nil
}

// probePlain returns the beginning of what a port answers to a four-letter word without TLS: every
// server for clients answers it, or says that it does not. It returns nothing of a port for TLS.
func probePlain(open func() (net.Conn, error)) []byte {
	conn, err := open()
	if err != nil {
		return nil
	}
	defer conn.Close()
	// With the newline a port for TLS has a record's header, and need not wait for the rest of it.
	if _, err := io.WriteString(conn, "srvr\n"); err != nil {
		return nil
	}
	var answer [5]byte
	n, _ := io.ReadFull(conn, answer[:])
	if isTLSRecord(answer[:n]) {
		return nil
	}
	return answer[:n]
}

// plainAnswer is what the beginning of an answer says about the port that has sent it: one in text
// to a handshake of TLS, or to one of a client. otherwise is the error for another one.
func plainAnswer(address string, err, otherwise error) error {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && bytes.HasPrefix(record.RecordHeader[:], []byte("HTTP")) {
		return fmt.Errorf("%s: %w", address, ErrHTTP)
	}
	return otherwise
}

// isRemoteAlert reports whether the other side has ended TLS with an alert.
func isRemoteAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// isTLSRecord reports whether a port answers with a record of TLS, such as an alert.
func isTLSRecord(b []byte) bool {
	const alert, handshake, major = 21, 22, 3
	return len(b) > 1 && (b[0] == alert || b[0] == handshake) && b[1] == major
}

// misfit returns why a server that was connected to does not do the handshake, if that is known,
// and takes note of it for Reach.
func (c *serverConn) misfit(err error) error {
	if isTimeout(err) {
		return err // another server is next, at once
	}
	d := c.d
	cause := d.hosts.misfit(c.address, func() error {
		switch {
		case d.tls == nil:
			return mismatch(c.address, nil, d.probe(c.address))
		case isRemoteAlert(err):
			return d.refusedTLS(c.address, err)
		}
		return nil
	})
	if cause == nil {
		return err
	}
	d.hosts.dialed(c.address, cause)
	return cause
}

// probe opens connections to find out what a port speaks.
func (d *dialer) probe(address string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		conn, err := d.open("tcp", address, probeTime)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(probeTime))
		}
		return conn, err
	}
}

// refusedTLS is the error of a server that ends TLS with an alert.
func (d *dialer) refusedTLS(address string, err error) error {
	if len(d.tls.Certificates) == 0 && d.tls.GetClientCertificate == nil {
		return fmt.Errorf("%s: %w: %w", address, ErrCertificateNeeded, err)
	}
	return fmt.Errorf("recipes: %s refuses the certificate of this program: %w", address, err)
}

// tlsFailure is the error of a handshake of TLS that failed with err.
func (d *dialer) tlsFailure(address string, err error) error {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case plain:
		return plainAnswer(address, err, fmt.Errorf("%s: %w", address, ErrNoTLS))
	case isRemoteAlert(err):
		return d.refusedTLS(address, err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok && !isTimeout(err) {
		if cause := d.hosts.misfit(address, func() error {
			return mismatch(address, d.tls, d.probe(address))
		}); cause != nil {
			return cause
		}
	}
	return fmt.Errorf("recipes: TLS with %s: %w", address, err)
}
