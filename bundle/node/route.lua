-- Orthanc sends each MR series to the node when no image has come for StableAge seconds, but not what came from the node.
function OnStableSeries(id, tags, metadata)
  if tags['Modality'] == 'MR' and metadata['RemoteAET'] ~= 'DRIFT' then
    RestApiPost('/modalities/drift/store', id)
  end
end
