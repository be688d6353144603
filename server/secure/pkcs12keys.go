package secure

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"unicode/utf16"

	"software.sslmate.com/src/go-pkcs12"
)

// The parts of a PKCS12 store (RFC 7292) that lead to its keys:
//
//	PFX: version, ContentInfo (data: AuthenticatedSafe), MacData
//	AuthenticatedSafe: a SEQUENCE of ContentInfo, each of them data or encrypted: SafeContents
//	SafeContents: a SEQUENCE of bags, each with a key or a certificate
type (
	pfx struct {
		Version  int
		AuthSafe contentInfo
		MacData  macData `asn1:"optional"`
	}
	contentInfo struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"tag:0,explicit,optional"`
	}
	macData struct {
		Mac struct {
			Algorithm pkix.AlgorithmIdentifier
			Digest    []byte
		}
		Salt       []byte
		Iterations int `asn1:"optional,default:1"`
	}
)

var (
	oidData        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidSHA1        = asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26}
	oidKeyBag      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 1}
	oidShroudedBag = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 2}
)

// maxKeys bounds the private keys of a store.
const maxKeys = 16

// splitKeys makes a store for each private key of a store that has several, with all certificates:
// go-pkcs12 reads one key only. A store in which it finds less than two keys is returned as it is,
// and so is one that its password does not open.
func splitKeys(text []byte, password string) [][]byte {
	whole := [][]byte{text}
	var p pfx
	var safes []asn1.RawValue
	if unmarshalAll(text, &p) != nil || unmarshalData(p.AuthSafe, &safes) != nil {
		return whole
	}
	var keys, others []asn1.RawValue
	for _, safe := range safes {
		k, o := keyBags(safe)
		keys, others = append(keys, k...), append(others, o...)
	}
	// Order: the library verifies the MAC of the store before it finds a second key.
	if _, _, _, err := pkcs12.DecodeChain(text, password); len(keys) < 2 || len(keys) > maxKeys ||
		errors.Is(err, pkcs12.ErrIncorrectPassword) || errors.Is(err, pkcs12.ErrDecryption) {
		return whole
	}
	var parts [][]byte
	for _, key := range keys {
		part, err := storeOfKey(p.Version, key, others, password)
		if err != nil {
			return whole
		}
		parts = append(parts, part)
	}
	return parts
}

// keyBags returns the bags of a part of a store that have private keys, and the part if it has
// other bags, or is encrypted.
func keyBags(safe asn1.RawValue) (keys, others []asn1.RawValue) {
	var info contentInfo
	var bags []asn1.RawValue
	if unmarshalAll(safe.FullBytes, &info) != nil || !info.Type.Equal(oidData) || unmarshalData(info, &bags) != nil {
		return nil, []asn1.RawValue{safe}
	}
	for _, bag := range bags {
		var id asn1.ObjectIdentifier
		if _, err := asn1.Unmarshal(bag.Bytes, &id); err == nil && (id.Equal(oidKeyBag) || id.Equal(oidShroudedBag)) {
			keys = append(keys, bag)
		}
	}
	if len(keys) != len(bags) {
		return nil, []asn1.RawValue{safe}
	}
	return keys, nil
}

// storeOfKey makes a store of one bag with a key and the parts that have none. Its MAC is there
// because the library wants one.
func storeOfKey(version int, key asn1.RawValue, others []asn1.RawValue, password string) ([]byte, error) {
	safe, err := dataInfo([]asn1.RawValue{key})
	if err != nil {
		return nil, err
	}
	raw, err := asn1.Marshal(safe)
	if err != nil {
		return nil, err
	}
	authSafe, err := dataInfo(append([]asn1.RawValue{{FullBytes: raw}}, others...))
	if err != nil {
		return nil, err
	}
	p := pfx{Version: version, AuthSafe: authSafe}
	p.MacData.Mac.Algorithm = pkix.AlgorithmIdentifier{Algorithm: oidSHA1, Parameters: asn1.NullRawValue}
	p.MacData.Salt, p.MacData.Iterations = make([]byte, 8), 1
	var signed []byte
	if err := unmarshalAll(authSafe.Content.Bytes, &signed); err != nil {
		return nil, err
	}
	mac := hmac.New(sha1.New, macKey(password, p.MacData.Salt))
	mac.Write(signed)
	p.MacData.Mac.Digest = mac.Sum(nil)
	return asn1.Marshal(p)
}

// macKey derives the key of a MAC with SHA-1 and one iteration (RFC 7292, appendix B.2).
func macKey(password string, salt []byte) []byte {
	const block, purposeMAC = 64, 3
	var text []byte
	for _, unit := range append(utf16.Encode([]rune(password)), 0) {
		text = append(text, byte(unit>>8), byte(unit))
	}
	hash := sha1.New()
	for range block {
		hash.Write([]byte{purposeMAC})
	}
	for _, b := range [][]byte{salt, text} {
		filled := (len(b) + block - 1) / block * block
		for i := range filled {
			hash.Write(b[i%len(b) : i%len(b)+1])
		}
	}
	return hash.Sum(nil)
}

// dataInfo is a ContentInfo of type data with a SEQUENCE of values.
func dataInfo(values []asn1.RawValue) (info contentInfo, err error) {
	sequence, err := asn1.Marshal(values)
	if err != nil {
		return info, err
	}
	octets, err := asn1.Marshal(sequence)
	info.Type = oidData
	info.Content = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: octets}
	return info, err
}

// unmarshalData reads the content of a ContentInfo of type data.
func unmarshalData(info contentInfo, to any) error {
	var octets []byte
	if err := unmarshalAll(info.Content.Bytes, &octets); err != nil {
		return err
	}
	return unmarshalAll(octets, to)
}

func unmarshalAll(text []byte, to any) error {
	rest, err := asn1.Unmarshal(text, to)
	if err == nil && len(rest) > 0 {
		err = errors.New("something follows its end")
	}
	return err
}
