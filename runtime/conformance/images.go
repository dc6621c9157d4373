package conformance

import (
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *suite) pull(ref string, auth *runtimeapi.AuthConfig) (string, error) {
	answer, err := s.images.PullImage(s.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Auth: auth})
	return answer.GetImageRef(), err
}

func (s *suite) image(ref string) *runtimeapi.Image {
	s.Helper()
	answer, err := s.images.ImageStatus(s.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	require.NoError(s, err, "an absent image is no error")
	return answer.GetImage()
}

func images(s *suite) {
	present := s.image(s.Image)
	require.NotEmpty(s, present.GetId())
	require.Equal(s, []string{s.Image}, present.GetRepoTags())
	require.NotZero(s, present.GetSize())

	require.Nil(s, s.image(s.PullImage))
	p := s.runPod("images")
	config := s.containerConfig("main", "true")
	config.Image.Image = s.PullImage
	_, err := s.tryCreate(p, config)
	require.Equal(s, codes.NotFound, s.code(err), err)

	id, err := s.pull(s.PullImage, nil)
	require.NoError(s, err)
	got := s.image(s.PullImage)
	require.Equal(s, id, got.GetId())
	require.Equal(s, []string{s.PullImage}, got.GetRepoTags())
	require.Len(s, got.GetRepoDigests(), 1)
	require.Equal(s, id, s.image(id).GetId(), "an image is found by id")
	require.Equal(s, id, s.image(got.GetRepoDigests()[0]).GetId(), "and by digest")
	again, err := s.pull(s.PullImage, nil)
	require.NoError(s, err)
	require.Equal(s, id, again)

	container := s.create(p, config)
	require.NoError(s, s.tryStart(container))
	ended := s.waitExited(container)
	require.Equal(s, s.PullImage, ended.GetImage().GetImage())
	require.Equal(s, got.GetRepoDigests()[0], ended.GetImageRef())
	listed := s.list(&runtimeapi.ContainerFilter{Id: container})
	require.Equal(s, id, listed[0].GetImageRef())

	list, err := s.images.ListImages(s.ctx, &runtimeapi.ListImagesRequest{})
	require.NoError(s, err)
	var ids []string
	for _, i := range list.GetImages() {
		ids = append(ids, i.GetId())
	}
	require.Contains(s, ids, id)
	require.Contains(s, ids, present.GetId())

	for range 2 {
		_, err = s.images.RemoveImage(s.ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: s.PullImage}})
		require.NoError(s, err, "removing what is absent is no error")
	}
	require.Nil(s, s.image(s.PullImage))
}

func imageErrors(s *suite) {
	_, err := s.pull(s.MissingImage, nil)
	require.Equal(s, codes.NotFound, s.code(err), err)
	// Refused credentials have no class on any release.
	without, guessed := "401 Unauthorized", "401 Unauthorized"
	if s.Flavor == Containerd24 {
		without, guessed = "authorization failed: no basic auth credentials", "401 Unauthorized"
	}
	_, err = s.pull(s.SecretImage, nil)
	require.Equal(s, codes.Unknown, s.code(err), err)
	require.Contains(s, err.Error(), without)
	_, err = s.pull(s.SecretImage, &runtimeapi.AuthConfig{Username: s.User, Password: "guess"})
	require.Equal(s, codes.Unknown, s.code(err), err)
	require.Contains(s, err.Error(), guessed)
	_, err = s.pull(s.UnreachableImage, nil)
	require.Error(s, err)
	require.NotEqual(s, codes.NotFound, s.code(err), err)
	require.Contains(s, err.Error(), "connection refused")
	require.Nil(s, s.image(s.SecretImage))
	_, err = s.pull(s.SecretImage, &runtimeapi.AuthConfig{Username: s.User, Password: s.Password})
	require.NoError(s, err)
}
