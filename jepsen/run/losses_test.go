package run

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is torn is the end of the newest segment's content.
func TestTearLog(t *testing.T) {
	dir := t.TempDir()
	old := bytes.Repeat([]byte{7}, 100)
	whole := append(bytes.Repeat([]byte{9}, 100), make([]byte, 50)...)
	for name, content := range map[string][]byte{"01.log": old, "02.log": whole} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tearLog(dir); err != nil {
		t.Fatal(err)
	}
	torn, err := os.ReadFile(filepath.Join(dir, "02.log"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 100 - tornBytes; i < 100; i++ {
		if torn[i] == whole[i] {
			t.Errorf("byte %d is as it was", i)
		}
	}
	copy(torn[100-tornBytes:], whole[100-tornBytes:100])
	if !bytes.Equal(torn, whole) {
		t.Error("more was torn than the end")
	}
	if left, err := os.ReadFile(filepath.Join(dir, "01.log")); err != nil || !bytes.Equal(left, old) {
		t.Errorf("the older segment: %v, %v", left, err)
	}
}
