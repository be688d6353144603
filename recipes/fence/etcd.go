package fence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Etcd remembers in a key of etcd. The check and the writes are one transaction. Any number of
// processes may share it; its methods may be called from any goroutine. It uses the JSON gateway
// that every etcd server has (/v3/kv/txn), so it needs no library.
//
// The key is Prefix and the resource's name. Its value is the token as 19 decimal digits, so that
// etcd's comparison of bytes is the comparison of numbers:
//
//	if   create_revision(fence/account) = 0                                      the first token
//	then put fence/account 0000000004294967311, and the writes
//	else if   value(fence/account) < 0000000004294967312                         equal or smaller
//	     and  value(fence/account) > 0000000000000000000                         not damaged
//	     then put fence/account 0000000004294967311, and the writes
//	     else get fence/account                                                  refused
type Etcd struct {
	// URL of the server, as "http://127.0.0.1:2379".
	URL string

	// Client sends the requests; nil stands for http.DefaultClient. Its transport adds
	// certificates, and an Authorization where etcd has users.
	Client *http.Client

	// Prefix of the keys; "" stands for "fence/".
	Prefix string
}

// EtcdOp is a write of a transaction.
type EtcdOp struct {
	request map[string]any
}

// EtcdPut writes a key.
func EtcdPut(key, value string) EtcdOp {
	return EtcdOp{map[string]any{"requestPut": map[string]any{"key": []byte(key), "value": []byte(value)}}}
}

// EtcdDelete deletes a key, if it is there.
func EtcdDelete(key string) EtcdOp {
	return EtcdOp{map[string]any{"requestDeleteRange": map[string]any{"key": []byte(key)}}}
}

// etcdAnswer is the part of a TxnResponse that Etcd reads.
type etcdAnswer struct {
	Succeeded bool `json:"succeeded"`
	Responses []struct {
		Txn   *etcdAnswer `json:"response_txn"`
		Range *struct {
			Kvs []struct {
				Value []byte `json:"value"`
			} `json:"kvs"`
		} `json:"response_range"`
	} `json:"responses"`
}

// etcdAnswerBytes bounds an answer. The answers to Etcd's requests have some hundred bytes for each
// write.
const etcdAnswerBytes = 4 << 20

// Check accepts a token or refuses it. A holder that reads before it writes begins with it: then no
// write with a smaller token comes after the read.
func (e *Etcd) Check(ctx context.Context, resource string, token int64) error {
	return e.Do(ctx, resource, token)
}

// Do does all of the writes if the token is accepted, and otherwise none. With an error other than
// ErrStale, ErrInvalid and ErrDamaged they may have been done, or may be done yet. No two writes
// may have the same key.
func (e *Etcd) Do(ctx context.Context, resource string, token int64, writes ...EtcdOp) error {
	if _, err := check(resource, token, 0); err != nil {
		return err
	}
	prefix := e.Prefix
	if prefix == "" {
		prefix = "fence/"
	}
	key := prefix + resource
	answer, err := e.send(ctx, etcdTxn(key, token, writes))
	if err != nil {
		return fmt.Errorf("fence: etcd: %w", err)
	}
	if answer.Succeeded {
		return nil
	}
	if len(answer.Responses) == 1 && answer.Responses[0].Txn != nil {
		inner := answer.Responses[0].Txn
		if inner.Succeeded {
			return nil
		}
		if len(inner.Responses) == 1 && inner.Responses[0].Range != nil && len(inner.Responses[0].Range.Kvs) == 1 {
			return refusal(resource, token, string(inner.Responses[0].Range.Kvs[0].Value), key)
		}
	}
	return errors.New("fence: etcd: an answer that the transaction does not give")
}

// etcdTxn is the transaction. Slices of bytes become base64, as the gateway has them.
func etcdTxn(key string, token int64, writes []EtcdOp) map[string]any {
	compare := func(target, result, field string, value any) map[string]any {
		return map[string]any{"key": []byte(key), "target": target, "result": result, field: value}
	}
	digits := func(n uint64) []byte { return fmt.Appendf(nil, "%019d", n) }
	accept := []any{EtcdPut(key, string(digits(uint64(token)))).request}
	for _, w := range writes {
		accept = append(accept, w.request)
	}
	again := map[string]any{
		"compare": []any{
			compare("VALUE", "LESS", "value", digits(uint64(token)+1)),
			compare("VALUE", "GREATER", "value", digits(0)),
		},
		"success": accept,
		"failure": []any{map[string]any{"requestRange": map[string]any{"key": []byte(key)}}},
	}
	return map[string]any{
		"compare": []any{compare("CREATE", "EQUAL", "createRevision", "0")},
		"success": accept,
		"failure": []any{map[string]any{"requestTxn": again}},
	}
}

// send executes a transaction.
func (e *Etcd) send(ctx context.Context, txn map[string]any) (*etcdAnswer, error) {
	body, err := json.Marshal(txn)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(e.URL, "/")+"/v3/kv/txn",
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	client := e.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, etcdAnswerBytes))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s: %.200q", resp.Status, text)
	}
	answer := new(etcdAnswer)
	return answer, json.Unmarshal(text, answer)
}
