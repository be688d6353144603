package secure

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
)

// jksMagic is how a Java key store begins.
var jksMagic = []byte{0xfe, 0xed, 0xfe, 0xed}

// decodeJKS reads a Java key store. The private keys are in the order in which Java lists them.
func decodeJKS(text []byte, password string, withKey bool) (c contents, err error) {
	aliases, err := checkJKS(text)
	if err != nil {
		return c, fmt.Errorf("JKS: %w", err)
	}
	store := keystore.New(keystore.WithCaseExactAliases())
	if err := store.Load(bytes.NewReader(text), []byte(password)); err != nil {
		// The structure is sound, so it is the checksum, which has the password in it.
		return c, errPassword
	}
	var chain []keystore.Certificate
	for _, alias := range javaOrder(aliases) {
		switch {
		case !withKey && store.IsTrustedCertificateEntry(alias):
			entry, err := store.GetTrustedCertificateEntry(alias)
			if err != nil {
				return c, fmt.Errorf("JKS: %s: %w", alias, err)
			}
			chain = append(chain, entry.Certificate)
		case withKey && store.IsPrivateKeyEntry(alias):
			entry, err := store.GetPrivateKeyEntry(alias, []byte(password))
			if err != nil {
				return c, fmt.Errorf("JKS: the key %s has another password than the store: %w", alias, err)
			}
			key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
			if err != nil {
				return c, fmt.Errorf("JKS: the key %s: %w", alias, err)
			}
			c.keys = append(c.keys, key)
			chain = append(chain, entry.CertificateChain...)
		}
	}
	for _, cert := range chain {
		parsed, err := x509.ParseCertificate(cert.Content)
		if err != nil {
			return c, fmt.Errorf("JKS: %w", err)
		}
		c.certs = append(c.certs, parsed)
	}
	return c, nil
}

// javaOrder sorts the aliases of a store as Java enumerates them, which keeps them in a Hashtable:
// from the last bucket to the first, and in a bucket the newest first.
func javaOrder(aliases []string) (sorted []string) {
	buckets := make([][]string, 11)
	at := func(alias string) int {
		var hash int32
		for _, unit := range utf16.Encode([]rune(strings.ToLower(alias))) {
			hash = 31*hash + int32(unit)
		}
		return int(hash&math.MaxInt32) % len(buckets)
	}
	for n, alias := range aliases {
		if n >= len(buckets)*3/4 { // the load factor
			old := buckets
			buckets = make([][]string, 2*len(old)+1)
			for _, bucket := range slices.Backward(old) {
				for _, moved := range bucket {
					buckets[at(moved)] = slices.Insert(buckets[at(moved)], 0, moved)
				}
			}
		}
		buckets[at(alias)] = slices.Insert(buckets[at(alias)], 0, alias)
	}
	for _, bucket := range slices.Backward(buckets) {
		sorted = append(sorted, bucket...)
	}
	return sorted
}

// checkJKS walks through a Java key store and checks every length against the size of the file: the
// library allocates by a length before it reads. It returns the aliases as they come.
//
//	magic u32, version u32, entries u32
//	entry:       tag u32, alias string
//	  tag 1:     created u64, key (u32 length), certificates u32, each as below
//	  tag 2:     created u64, a certificate
//	certificate: type string (version 2), bytes (u32 length)
//	string:      u16 length
//	SHA-1 of it all, 20 bytes
func checkJKS(text []byte) (aliases []string, err error) {
	w := jksWalk{rest: text}
	w.take(len(jksMagic))
	version := w.u32()
	if version != 1 && version != 2 {
		return nil, fmt.Errorf("version %d is not known", version)
	}
	seen := map[string]bool{}
	for n := w.u32(); n > 0 && w.err == nil; n-- {
		tag := w.u32()
		alias := string(w.take(int(w.u16())))
		if seen[alias] {
			w.fail(fmt.Errorf("has two entries %q", alias))
		}
		seen[alias] = true
		aliases = append(aliases, alias)
		w.take(8)
		certs := uint32(1)
		switch tag {
		case 1:
			w.key(w.take(int(w.u32())))
			certs = w.u32()
		case 2:
		default:
			w.fail(fmt.Errorf("there is no kind of entry %d", tag))
		}
		if int64(certs) > int64(len(w.rest)) {
			w.fail(errTruncated)
		}
		for ; certs > 0 && w.err == nil; certs-- {
			if version == 2 {
				w.take(int(w.u16()))
			}
			w.take(int(w.u32()))
		}
	}
	w.take(20)
	if w.err == nil && len(w.rest) > 0 {
		return nil, errors.New("something follows its end")
	}
	return aliases, w.err
}

var errTruncated = errors.New("the file ends too early")

// jksWalk reads the numbers of a Java key store.
type jksWalk struct {
	rest []byte
	err  error
}

func (w *jksWalk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.rest = nil
}

// take takes n bytes; after an error there are none.
func (w *jksWalk) take(n int) []byte {
	if w.err != nil || n < 0 || n > len(w.rest) {
		w.fail(errTruncated)
		return nil
	}
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

func (w *jksWalk) u16() uint16 {
	if b := w.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (w *jksWalk) u32() uint32 {
	if b := w.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// key checks an encrypted key, which the library takes to be longer than its salt and checksum.
func (w *jksWalk) key(b []byte) {
	var info struct {
		Algo struct {
			Algorithm  asn1.ObjectIdentifier
			Parameters asn1.RawValue `asn1:"optional"`
		}
		Key []byte
	}
	const saltAndSum = 20 + 20
	if rest, err := asn1.Unmarshal(slices.Clone(b), &info); w.err == nil &&
		(err != nil || len(rest) > 0 || len(info.Key) < saltAndSum) {
		w.fail(errors.New("a key is not encrypted as in a Java key store"))
	}
}
