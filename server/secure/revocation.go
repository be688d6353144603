package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"lockkeeper/server/secure/pemfile"
)

// revocations are revocation lists by the subject of their issuer; nil if nothing is to be looked
// up.
type revocations map[string][]*x509.RevocationList

// readRevocations reads a file with revocation lists in PEM, or one in DER.
func readRevocations(key, file string) (revocations, error) {
	text, err := readFile(key, file)
	if err != nil {
		return nil, err
	}
	r, err := parseRevocations(text)
	if err != nil {
		return nil, &FileError{key, file, err}
	}
	return r, nil
}

func parseRevocations(text []byte) (revocations, error) {
	r := revocations{}
	add := func(der []byte) error {
		list, err := x509.ParseRevocationList(der)
		if err == nil {
			err = isComplete(list)
		}
		if err == nil {
			r[string(list.RawIssuer)] = append(r[string(list.RawIssuer)], list)
		}
		return err
	}
	if isDER(text) {
		if err := add(text); err != nil {
			return nil, err
		}
		return r, nil
	}
	blocks, err := pemfile.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks {
		if block.Type != pemRevocations {
			return nil, block.Errorf("has a %s, and this is a file of revocation lists", block.Type)
		}
		if err := add(block.Bytes); err != nil {
			return nil, fmt.Errorf("line %d: %w", block.Line, err)
		}
	}
	if len(r) == 0 {
		return nil, errors.New("has no revocation list, neither in PEM nor in DER")
	}
	return r, nil
}

var errPartialList = errors.New("has a revocation list with a critical extension: it is not a complete one of all " +
	"certificates of its issuer")

// isComplete returns errPartialList for a list that is marked as partial, as one of the changes
// since another list (delta), or of some certificates only: a certificate that is not on it may be
// revoked all the same.
func isComplete(list *x509.RevocationList) error {
	for _, extension := range list.Extensions {
		if extension.Critical {
			return errPartialList
		}
	}
	return nil
}

// verify implements tls.Config.VerifyConnection: no certificate in the chain of the other side may
// be revoked. It is enough if that holds for one of the chains that were found.
func (r revocations) verify(cs tls.ConnectionState) error {
	if r == nil {
		return nil
	}
	var err error
	for _, chain := range cs.VerifiedChains {
		if err = r.verifyChain(chain, time.Now()); err == nil {
			return nil
		}
	}
	return err
}

func (r revocations) verifyChain(chain []*x509.Certificate, now time.Time) error {
	for i, cert := range chain[:len(chain)-1] {
		if err := r.verifyOne(cert, chain[i+1], now); err != nil {
			return err
		}
	}
	return nil
}

// verifyOne verifies that a certificate is on no list of its issuer, and that one of these is
// current.
func (r revocations) verifyOne(cert, issuer *x509.Certificate, now time.Time) error {
	err := fmt.Errorf("tls: there is no revocation list of %s", issuer.Subject)
	current := false
	for _, list := range r[string(issuer.RawSubject)] {
		if bad := list.CheckSignatureFrom(issuer); bad != nil {
			err = fmt.Errorf("tls: the revocation list of %s is not signed by it: %w", issuer.Subject, bad)
			continue
		}
		for _, revoked := range list.RevokedCertificateEntries {
			if revoked.SerialNumber.Cmp(cert.SerialNumber) == 0 {
				return fmt.Errorf("tls: the certificate of %s has been revoked on %s",
					Subject(cert), revoked.RevocationTime.UTC().Format(time.RFC3339))
			}
		}
		if !list.NextUpdate.IsZero() && now.After(list.NextUpdate) {
			err = fmt.Errorf("tls: the revocation list of %s expired on %s", issuer.Subject,
				list.NextUpdate.UTC().Format(time.RFC3339))
			continue
		}
		current = true
	}
	if current {
		return nil
	}
	return err
}
