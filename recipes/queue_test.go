package recipes

import (
	"slices"
	"testing"
)

// TestItemsInTurn: numbers of a counter that has overflowed come behind the others.
func TestItemsInTurn(t *testing.T) {
	want := []string{
		"entry-050-0000000007", "entry-050--2147483648", "entry-050--2147483647", "entry-050--999999999",
		"entry-100-0000000001", "entry-100-2147483647", "entry-100--2147483648", "other-0000000001",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, inTurn)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
