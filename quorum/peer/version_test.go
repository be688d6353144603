package peer

import "testing"

func TestCommonVersion(t *testing.T) {
	for _, tc := range []struct{ a, b, want uint8 }{{7, 7, 7}, {7, 6, 6}, {6, 7, 6}, {7, 8, 7}, {6, 8, 0}, {8, 6, 0}, {255, 0, 0}, {1, 0, 0}, {1, 1, 1}, {1, 2, 1}} {
		if got := commonVersion(tc.a, tc.b); got != tc.want {
			t.Errorf("commonVersion(%d, %d) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
