package spelling

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"image", "imaeg", 2}, {"image", "images", 1}, {"kitten", "sitting", 3}, {"same", "same", 0}} {
		require.Equal(t, c.want, Distance(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, Distance(c.b, c.a), "%s %s", c.b, c.a)
	}
}
