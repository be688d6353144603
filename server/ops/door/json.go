package door

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// Encode returns a value as JSON, in one line without its end.
func Encode(body any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // answers have nothing that cannot be encoded
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// SendJSON sends JSON.
func SendJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has gone, or has its answer
}

// WriteJSON sends a value as JSON, in one line.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	SendJSON(w, status, append(Encode(body), '\n'))
}

// WriteError sends {"error": reason}.
func WriteError(w http.ResponseWriter, status int, reason string) {
	WriteJSON(w, status, map[string]string{"error": reason})
}
