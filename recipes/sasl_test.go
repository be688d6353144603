package recipes

import (
	"strings"
	"testing"
)

// TestSASLResponse: a login that ZooKeeper 3.8.0 has accepted, and its answer.
func TestSASLResponse(t *testing.T) {
	const challenge = `realm="zk-sasl-md5",nonce="xQpk2dwfbGeGo3EP+xsCp1wbr7FVNaX3lfaKyfqT",charset=utf-8,algorithm=md5-sess`
	response, proof, err := saslResponse(challenge, "bob", "bobsecret", "abc")
	const want = `charset=utf-8,username="bob",realm="zk-sasl-md5",nonce="xQpk2dwfbGeGo3EP+xsCp1wbr7FVNaX3lfaKyfqT",` +
		`nc=00000001,cnonce="abc",digest-uri="zookeeper/zk-sasl-md5",response=7e475aba942a680e54a478f2120cfaa8,qop=auth`
	if response != want || proof != "rspauth=294f9b8e630742f05b1572d683db7a43" || err != nil {
		t.Errorf("%s\n%s\n%v", response, proof, err)
	}
	for _, odd := range []string{"", `nonce="x"`, strings.Replace(challenge, "zk-sasl-md5", "other", 1), strings.Replace(challenge, "xQ", `\`, 1)} {
		if _, _, err := saslResponse(odd, "bob", "bobsecret", "abc"); err == nil {
			t.Errorf("challenge %q is answered", odd)
		}
	}
}
